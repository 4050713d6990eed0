-- title: Who changed what?
-- doc: The latest 200 requests that created, altered or deleted something, with their first three resources, and old and new values.
-- mark: outcome not in ok, throttled
-- newest: last
WITH described AS (
  SELECT event_id, position, string_agg(CASE
    WHEN old_value IS NULL AND new_value IS NULL THEN concat(name, '=', coalesce(value, ''))
    ELSE concat(name, ': ', coalesce(old_value, '(unset)'), ' -> ', coalesce(new_value, '(unset)')) END, ', ') AS text
  FROM attributes GROUP BY event_id, position
), named AS (
  SELECT r.event_id, concat(r.type, ' ', r.name, coalesce(' (' || d.text || ')', '')) AS text
  FROM resources r LEFT JOIN described d ON d.event_id = r.event_id AND d.position = r.position
  WHERE r.position < 3
), joined AS (
  SELECT event_id, string_agg(text, '; ') AS resources FROM named GROUP BY event_id
)
SELECT e.time_us, e.principal, e.client_address, e.listener, e.api_name, j.resources, e.outcome, e.error_name AS error
FROM events e LEFT JOIN joined j ON j.event_id = e.event_id
WHERE e.kind = 'request' AND e.api_key IN ({administrative}) AND e.requests > 0
ORDER BY e.time_us DESC, e.event_id LIMIT 200
