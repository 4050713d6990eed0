-- title: Probing for access
-- severity: medium
-- key: principal
-- doc: One account was denied at least 5 different resources.
-- sentence: {principal} asked for {object} without the right to, within {span}: {detail}[, from {address}][ by listener {listener}]
-- around: 60
SELECT e.principal, min(e.client_address) AS address, concat(min(r.name), ' and others') AS object,
  sum(e.requests) AS events, min(e.time_us) AS first_us, max(e.time_us) AS last_us,
  min_by(e.event_id, e.time_us) AS first_event, max_by(e.event_id, e.time_us) AS last_event,
  concat(cast(count(DISTINCT concat(r.type, ' ', r.name)) AS VARCHAR(20)), ' resources were denied') AS detail
FROM events e JOIN resources r ON r.event_id = e.event_id
WHERE e.outcome = 'denied' AND r.granted = false
GROUP BY e.principal HAVING count(DISTINCT concat(r.type, ' ', r.name)) >= 5
