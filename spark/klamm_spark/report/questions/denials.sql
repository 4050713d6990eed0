-- title: Who was denied what?
-- doc: Requests that the authorizer refused, by the first resource that was denied.
-- count: requests
-- mark: always
WITH denied AS (
  SELECT event_id, min_by(concat(type, ' ', name), position) AS resource, min_by(operation, position) AS operation
  FROM resources WHERE granted = false GROUP BY event_id
)
SELECT e.listener, e.principal, min(e.client_address) AS address, e.api_name, d.resource, d.operation,
  e.error_name AS error, sum(e.requests) AS requests, max(e.time_us) AS last_us
FROM events e LEFT JOIN denied d ON d.event_id = e.event_id
WHERE e.kind = 'request' AND e.outcome = 'denied'
GROUP BY e.listener, e.principal, e.api_name, d.resource, d.operation, e.error_name
ORDER BY requests DESC, e.principal, coalesce(d.resource, ''), e.api_name, e.listener, coalesce(d.operation, ''),
  coalesce(e.error_name, '') LIMIT 15
