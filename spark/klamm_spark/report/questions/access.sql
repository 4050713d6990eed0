-- title: Who accessed which topic, and who tried?
-- doc: By topic, account and API; those with denials first. Records and bytes as far as they are known.
-- count: allowed, denied, records, addresses
-- bytes: bytes
-- mark: denied not in 0
SELECT r.name AS topic, e.principal, e.api_name,
  sum(CASE WHEN r.granted = false THEN 0 ELSE e.requests END) AS allowed,
  sum(CASE WHEN r.granted = false THEN e.requests ELSE 0 END) AS denied,
  sum(r.records) AS records, sum(r.bytes) AS bytes, count(DISTINCT e.client_address) AS addresses,
  max(e.time_us) AS last_us
FROM events e JOIN resources r ON r.event_id = e.event_id
WHERE e.kind = 'request' AND r.type = 'TOPIC' AND e.api_key NOT IN ({administrative})
GROUP BY r.name, e.principal, e.api_name
ORDER BY denied DESC, allowed DESC, topic, e.principal, e.api_name LIMIT 200
