-- title: First administrative act of an account
-- severity: low
-- key: principal
-- doc: An account that had sent at least 100 requests, none of them administrative, changed topics, configurations, ACLs, credentials, quotas or tokens.
-- sentence: {principal} sent {object}, its first administrative request {detail}[, from {address}][ by listener {listener}]
-- around: 60
WITH acts AS (
  SELECT principal, client_address, time_us, event_id, api_name FROM events WHERE api_key IN ({administrative}) AND requests > 0
), firsts AS (
  SELECT principal, min(time_us) AS time_us, min_by(event_id, time_us) AS event_id,
    min_by(api_name, time_us) AS api_name, min_by(client_address, time_us) AS client_address, count(*) AS acts
  FROM acts GROUP BY principal
)
SELECT f.principal, f.client_address AS address, f.api_name AS object, f.acts AS events,
  f.time_us AS first_us, f.time_us AS last_us, f.event_id AS first_event, f.event_id AS last_event,
  concat('after ', cast(sum(e.requests) AS VARCHAR(20)), ' requests of other kinds') AS detail
FROM firsts f JOIN events e ON e.principal = f.principal AND e.kind = 'request' AND e.time_us < f.time_us
WHERE NOT EXISTS (SELECT 1 FROM earlier p WHERE p.principal = f.principal AND p.api_key IN ({administrative}))
GROUP BY f.principal, f.client_address, f.api_name, f.acts, f.time_us, f.event_id HAVING sum(e.requests) >= 100
