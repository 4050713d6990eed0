-- title: Who sends the most?
-- doc: The 15 clients with the most requests.
-- count: addresses, requests, errors
-- bytes: bytes_in, bytes_out
SELECT principal, client_id, count(DISTINCT client_address) AS addresses, sum(requests) AS requests,
  sum(request_bytes) AS bytes_in, sum(response_bytes) AS bytes_out,
  coalesce(sum(CASE WHEN error_code <> 0 THEN requests END), 0) AS errors
FROM events WHERE kind = 'request'
GROUP BY principal, client_id ORDER BY requests DESC, principal, coalesce(client_id, '') LIMIT 15
