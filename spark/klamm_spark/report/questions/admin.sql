-- title: What did the servers do?
-- doc: The latest 200 administrative events.
-- mark: outcome not in ok
-- newest: last
SELECT time_us, node, action, listener, outcome, coalesce(detail, reason) AS detail
FROM events WHERE kind = 'admin' ORDER BY time_us DESC, event_id LIMIT 200
