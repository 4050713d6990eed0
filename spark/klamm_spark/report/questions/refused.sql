-- title: Which connections were refused?
-- doc: Connections that were refused before a request.
-- count: connections
SELECT listener, client_address, reason, count(*) AS connections, max(time_us) AS last_us
FROM events WHERE kind = 'connection' AND action = 'refused'
GROUP BY listener, client_address, reason ORDER BY connections DESC, client_address, listener, reason LIMIT 15
