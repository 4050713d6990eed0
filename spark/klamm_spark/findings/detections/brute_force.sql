-- title: Brute force
-- severity: high
-- key: address
-- doc: At least 5 failed logins from one address within 5 minutes.
-- sentence: {events} logins[ from {address}] failed within {span}[, as {principal} and perhaps others][, by listener {listener}]
-- around: 30
WITH failures AS (
  SELECT *, count(*) OVER (
    PARTITION BY client_address ORDER BY time_us RANGE BETWEEN 300000000 PRECEDING AND CURRENT ROW) AS within
  FROM events WHERE kind = 'authentication' AND action IN ('failure', 'reauthentication_failure')
)
SELECT coalesce(min(attempted_principal), '') AS principal, client_address AS address, min(listener) AS object,
  count(*) AS events, min(time_us) AS first_us, max(time_us) AS last_us,
  min_by(event_id, time_us) AS first_event, max_by(event_id, time_us) AS last_event,
  concat(cast(max(within) AS VARCHAR(20)), ' failed logins within 5 minutes') AS detail
FROM failures GROUP BY client_address HAVING max(within) >= 5
