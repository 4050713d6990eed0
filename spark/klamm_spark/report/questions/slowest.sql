-- title: Which requests were the slowest?
-- doc: The 15 longest, without the time that they waited for data or others.
-- ms: time, request_queue, local, send
SELECT time_us, principal, client_id, api_name, total_time_ms - coalesce(remote_time_ms, 0) AS time,
  request_queue_time_ms AS request_queue, local_time_ms AS local, send_time_ms AS send, event_id
FROM events WHERE kind = 'request' AND total_time_ms IS NOT NULL AND requests = 1
ORDER BY time DESC, event_id LIMIT 15
