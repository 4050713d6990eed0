-- title: Login after many failures
-- severity: critical
-- doc: A login from an address that had at least 5 failures in the 10 minutes before: a guessed password, or a corrected configuration.
WITH logins AS (
  SELECT *, sum(CASE WHEN action = 'failure' THEN 1 ELSE 0 END) OVER (
    PARTITION BY client_address ORDER BY time_us RANGE BETWEEN 600000000 PRECEDING AND CURRENT ROW) AS failures
  FROM events WHERE kind = 'authentication' AND action IN ('failure', 'success')
)
SELECT principal, client_address AS address, min(listener) AS object, count(*) AS events,
  min(time_us) AS first_us, max(time_us) AS last_us,
  min_by(event_id, time_us) AS first_event, max_by(event_id, time_us) AS last_event,
  concat('after ', cast(max(failures) AS VARCHAR(20)), ' failed logins') AS detail
FROM logins WHERE action = 'success' AND failures >= 5 GROUP BY principal, client_address
