-- title: Access granted to oneself
-- severity: high
-- key: principal, object
-- doc: An ACL that allows something to the account that created it.
-- sentence: {principal} gave itself access to {object}: {detail}[, from {address}][ by listener {listener}]
-- around: 60
WITH grants AS (
  SELECT e.principal, e.client_address, e.time_us, e.event_id, r.name,
    max(CASE WHEN a.name = 'principal' THEN a.value END) AS grantee,
    max(CASE WHEN a.name = 'operation' THEN a.value END) AS operation,
    max(CASE WHEN a.name = 'permission' THEN a.value END) AS permission
  FROM events e
  JOIN resources r ON r.event_id = e.event_id
  JOIN attributes a ON a.event_id = r.event_id AND a.position = r.position
  WHERE e.api_name = 'CreateAcls' AND e.outcome = 'ok' AND coalesce(r.error_code, 0) = 0
  GROUP BY e.principal, e.client_address, e.time_us, e.event_id, r.name, r.position
)
SELECT principal, min(client_address) AS address, name AS object, count(*) AS events,
  min(time_us) AS first_us, max(time_us) AS last_us,
  min_by(event_id, time_us) AS first_event, max_by(event_id, time_us) AS last_event,
  concat('granted ', min(upper(operation))) AS detail
FROM grants WHERE grantee = principal AND upper(permission) = 'ALLOW' GROUP BY principal, name
