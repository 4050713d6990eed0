-- title: The trail has gaps
-- severity: high
-- doc: Events are missing; the server reported it.
-- sentence: On {object}, {detail}
SELECT '' AS principal, '' AS address, node AS object, count(*) AS events, min(time_us) AS first_us,
  max(time_us) AS last_us, min_by(event_id, time_us) AS first_event, max_by(event_id, time_us) AS last_event,
  concat(cast(sum(coalesce(gap_count, 0)) AS VARCHAR(20)), ' events are missing: ', min(action)) AS detail
FROM events WHERE kind = 'audit_gap' AND action IN ('dropped', 'torn_tail', 'unclean_stop', 'segments_deleted')
GROUP BY node, action
