-- title: How long did requests take?
-- doc: From receipt until the last byte of the response was written. Aggregated events count with their means.
-- count: requests
-- ms: p50, p95, p99, max
WITH times AS (
  SELECT api_name, round(total_time_ms, 2) AS ms, sum(requests) AS n
  FROM events WHERE kind = 'request' AND total_time_ms IS NOT NULL GROUP BY 1, 2
), ranked AS (
  SELECT api_name, ms, sum(n) OVER (PARTITION BY api_name ORDER BY ms) AS upto,
    sum(n) OVER (PARTITION BY api_name) AS total
  FROM times
), percentiles AS (
  SELECT api_name, min(CASE WHEN upto > 0.5 * (total - 1) THEN ms END) AS p50,
    min(CASE WHEN upto > 0.95 * (total - 1) THEN ms END) AS p95,
    min(CASE WHEN upto > 0.99 * (total - 1) THEN ms END) AS p99
  FROM ranked GROUP BY api_name
), counted AS (
  SELECT api_name, sum(requests) AS requests, max(coalesce(total_time_max_ms, total_time_ms)) AS max
  FROM events WHERE kind = 'request' GROUP BY api_name
)
SELECT c.api_name, c.requests, p.p50, p.p95, p.p99, c.max
FROM counted c LEFT JOIN percentiles p ON p.api_name = c.api_name ORDER BY c.requests DESC, c.api_name
