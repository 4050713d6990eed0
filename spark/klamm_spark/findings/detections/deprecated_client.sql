-- title: Deprecated client
-- severity: low
-- doc: Client software older than the baseline of KIP-896, which Kafka 4.0 refuses.
-- sentence: {object} is in use at {detail}, and Kafka 4.0 refuses it
SELECT '' AS principal, '' AS address,
  coalesce(client_software_name || ' ' || client_software_version, client_software_name) AS object, sum(requests) AS events,
  min(time_us) AS first_us, max(time_us) AS last_us,
  min_by(event_id, time_us) AS first_event, max_by(event_id, time_us) AS last_event,
  concat(cast(count(DISTINCT client_address) AS VARCHAR(20)), ' addresses') AS detail
FROM events WHERE client_software_name IS NOT NULL GROUP BY client_software_name, client_software_version
HAVING {deprecated}
