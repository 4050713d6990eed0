-- title: How were requests answered?
-- doc: The requests of each API by listener.
-- count: all
SELECT listener, api_name, {outcomes} FROM events WHERE kind = 'request'
GROUP BY listener, api_name ORDER BY listener, requests DESC, api_name
