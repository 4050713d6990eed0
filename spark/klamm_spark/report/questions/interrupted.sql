-- title: Which changes have no outcome?
-- doc: State changes that a crash interrupted: the trail has what was asked for, and not what became of it.
-- mark: always
-- newest: last
WITH named AS (
  SELECT event_id, string_agg(concat(type, ' ', name), ', ') AS resources
  FROM resources WHERE position < 3 GROUP BY event_id
)
SELECT e.time_us, e.principal, e.client_address, e.api_name, n.resources, e.event_id
FROM events e LEFT JOIN named n ON n.event_id = e.event_id
WHERE e.kind = 'request' AND e.action = 'interrupted'
ORDER BY e.time_us DESC, e.event_id LIMIT 200
