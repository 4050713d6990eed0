-- title: Access granted, then used for a bulk read
-- severity: critical
-- key: principal, object
-- doc: An ACL that grants READ or ALL on a topic, and within an hour a first read of over 1 MiB, or of 1,000 requests, from that topic by whom it grants.
-- sentence: {principal} read {bytes} of {object} {delay} after {by} granted it[, from {address}][ by listener {listener}]
WITH grants AS (
  SELECT e.principal AS by_whom, e.time_us, e.event_id, r.name AS topic,
    max(CASE WHEN a.name = 'principal' THEN a.value END) AS grantee,
    max(CASE WHEN a.name = 'operation' THEN a.value END) AS operation,
    max(CASE WHEN a.name = 'permission' THEN a.value END) AS permission
  FROM events e
  JOIN resources r ON r.event_id = e.event_id
  JOIN attributes a ON a.event_id = r.event_id AND a.position = r.position
  WHERE e.api_name = 'CreateAcls' AND e.outcome = 'ok' AND r.type = 'TOPIC'
  GROUP BY e.principal, e.time_us, e.event_id, r.name, r.position
), reads AS (
  SELECT e.principal, e.client_address, e.time_us, e.event_id, e.requests, r.name AS topic, coalesce(r.bytes, 0) AS bytes
  FROM events e JOIN resources r ON r.event_id = e.event_id
  WHERE e.api_name = 'Fetch' AND e.outcome IN ('ok', 'throttled') AND r.type = 'TOPIC'
)
SELECT g.grantee AS principal, min(f.client_address) AS address, f.topic AS object, sum(f.requests) AS events,
  min(g.time_us) AS first_us, max(f.time_us) AS last_us,
  min_by(g.event_id, g.time_us) AS first_event, max_by(f.event_id, f.time_us) AS last_event,
  concat('granted by ', min(g.by_whom), ', then read ', cast(sum(f.bytes) AS VARCHAR(20)), ' bytes') AS detail
FROM grants g
JOIN reads f ON (g.topic = f.topic OR g.topic = '*' OR (length(g.topic) > 0 AND substring(f.topic, 1, length(g.topic)) = g.topic))
  AND g.grantee IN (f.principal, 'User:*') AND f.time_us >= g.time_us AND f.time_us < g.time_us + 3600000000
WHERE upper(g.operation) IN ('READ', 'ALL') AND upper(g.permission) = 'ALLOW'
  AND NOT EXISTS (
    SELECT 1 FROM reads b WHERE b.principal = f.principal AND b.topic = f.topic AND b.time_us < g.time_us)
GROUP BY g.grantee, f.topic HAVING sum(f.bytes) > 1048576 OR sum(f.requests) >= 1000
