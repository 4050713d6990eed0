-- title: Where does the time go?
-- doc: The mean of each stage of a request.
-- ms: all
SELECT api_name, sum(request_queue_time_ms * requests) / sum(requests) AS request_queue,
  sum(local_time_ms * requests) / sum(requests) AS local, sum(remote_time_ms * requests) / sum(requests) AS remote,
  sum(throttle_time_ms * requests) / sum(requests) AS throttle,
  sum(response_queue_time_ms * requests) / sum(requests) AS response_queue,
  sum(send_time_ms * requests) / sum(requests) AS send
FROM events WHERE kind = 'request' AND requests > 0
GROUP BY api_name ORDER BY sum(requests) DESC, api_name
