-- title: Who was throttled?
-- doc: Clients that were throttled, and for how long.
-- count: requests
-- ms: throttle_time, longest
SELECT principal, client_id, api_name, sum(requests) AS requests, sum(throttle_time_ms * requests) AS throttle_time,
  max(throttle_time_ms) AS longest
FROM events WHERE kind = 'request' AND throttle_time_ms > 0
GROUP BY principal, client_id, api_name ORDER BY throttle_time DESC, principal, coalesce(client_id, ''), api_name LIMIT 15
