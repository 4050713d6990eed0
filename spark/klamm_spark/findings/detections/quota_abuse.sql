-- title: Quota abuse
-- severity: medium
-- key: principal
-- doc: At least half of an account's requests were throttled, and at least 100.
-- sentence: {principal} hit its quota in {events} {detail}[, from {address}][ by listener {listener}]
SELECT principal, min(client_address) AS address, coalesce(min(client_id), '') AS object,
  sum(CASE WHEN throttle_time_ms > 0 THEN requests ELSE 0 END) AS events, min(time_us) AS first_us,
  max(time_us) AS last_us, min_by(event_id, time_us) AS first_event, max_by(event_id, time_us) AS last_event,
  concat('of ', cast(sum(requests) AS VARCHAR(20)), ' requests') AS detail
FROM events WHERE kind = 'request' GROUP BY principal
HAVING sum(CASE WHEN throttle_time_ms > 0 THEN requests ELSE 0 END) >= 100
  AND sum(CASE WHEN throttle_time_ms > 0 THEN requests ELSE 0 END) * 2 >= sum(requests)
