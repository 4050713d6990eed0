-- title: Where does the time go in the slowest hundredth?
-- doc: The 99th percentile of each stage.
-- ms: all
WITH times AS (
  SELECT api_name, 1 AS stage, request_queue_time_ms AS ms, requests FROM events WHERE kind = 'request'
  UNION ALL SELECT api_name, 2, local_time_ms, requests FROM events WHERE kind = 'request'
  UNION ALL SELECT api_name, 3, remote_time_ms, requests FROM events WHERE kind = 'request'
  UNION ALL SELECT api_name, 4, throttle_time_ms, requests FROM events WHERE kind = 'request'
  UNION ALL SELECT api_name, 5, response_queue_time_ms, requests FROM events WHERE kind = 'request'
  UNION ALL SELECT api_name, 6, send_time_ms, requests FROM events WHERE kind = 'request'
), counted AS (
  SELECT api_name, stage, round(ms, 2) AS ms, sum(requests) AS n FROM times WHERE ms IS NOT NULL GROUP BY 1, 2, 3
), ranked AS (
  SELECT api_name, stage, ms, sum(n) OVER (PARTITION BY api_name, stage ORDER BY ms) AS upto,
    sum(n) OVER (PARTITION BY api_name, stage) AS total
  FROM counted
)
SELECT api_name, min(CASE WHEN stage = 1 THEN ms END) AS request_queue, min(CASE WHEN stage = 2 THEN ms END) AS local,
  min(CASE WHEN stage = 3 THEN ms END) AS remote, min(CASE WHEN stage = 4 THEN ms END) AS throttle,
  min(CASE WHEN stage = 5 THEN ms END) AS response_queue, min(CASE WHEN stage = 6 THEN ms END) AS send
FROM ranked WHERE upto > 0.99 * (total - 1) GROUP BY api_name ORDER BY max(total) DESC, api_name
