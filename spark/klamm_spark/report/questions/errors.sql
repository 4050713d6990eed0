-- title: Which requests failed?
-- doc: Requests that were answered with an error other than a denial.
-- count: requests, principals
SELECT api_name, error_name AS error, sum(requests) AS requests, count(DISTINCT principal) AS principals
FROM events WHERE kind = 'request' AND error_code <> 0 AND outcome <> 'denied'
GROUP BY api_name, error_name ORDER BY requests DESC, api_name, error_name LIMIT 15
