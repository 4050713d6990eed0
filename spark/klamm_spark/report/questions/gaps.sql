-- title: Is the trail complete?
-- doc: Missing events that the server reported. `klamm audit verify` finds those that it did not.
-- count: events
-- mark: always
-- newest: last
SELECT time_us, node, action, coalesce(reason, detail) AS reason, gap_boot AS boot, gap_first_seq AS first,
  gap_last_seq AS last_missing, gap_count AS events
FROM events WHERE kind = 'audit_gap' ORDER BY time_us DESC, event_id LIMIT 200
