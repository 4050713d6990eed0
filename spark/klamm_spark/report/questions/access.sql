-- title: Who accessed what from where, by which listener, by which rule?
-- doc: By topic, account, API, address, listener and rule; those with denials first. Records and bytes as far as they are known.
-- count: allowed, denied, records
-- bytes: bytes
-- mark: denied not in 0
SELECT r.name AS topic, e.principal, e.api_name,
  sum(CASE WHEN r.granted = false THEN 0 ELSE e.requests END) AS allowed,
  sum(CASE WHEN r.granted = false THEN e.requests ELSE 0 END) AS denied,
  e.client_address AS address, e.listener,
  concat_ws(' ', replace(r.decided_by, '_', ' '), r.acl_principal, r.acl_operation, lower(r.acl_pattern_type), r.acl_name)
    AS rule,
  sum(r.records) AS records, sum(r.bytes) AS bytes, max(e.time_us) AS last_us
FROM events e JOIN resources r ON r.event_id = e.event_id
WHERE e.kind = 'request' AND r.type = 'TOPIC' AND e.api_key NOT IN ({administrative})
GROUP BY r.name, e.principal, e.api_name, e.client_address, e.listener, rule
ORDER BY denied DESC, allowed DESC, topic, e.principal, e.api_name, address, e.listener, rule LIMIT 200
