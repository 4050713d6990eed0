-- title: Login after many failures
-- severity: critical
-- doc: A login of an account from an address that had at least 5 failures in the 10 minutes before, with this account among those that were tried: a guessed password, or a corrected configuration.
-- sentence: {principal} logged in from {address} {detail}[, by listener {listener}]
-- around: 600
WITH logins AS (
  SELECT *, CASE WHEN action = 'failure' THEN attempted_principal ELSE principal END AS account
  FROM events WHERE kind = 'authentication' AND action IN ('failure', 'success')
), counted AS (
  SELECT *,
    sum(CASE WHEN action = 'failure' THEN 1 ELSE 0 END) OVER (
      PARTITION BY client_address ORDER BY time_us RANGE BETWEEN 600000000 PRECEDING AND CURRENT ROW) AS failures,
    sum(CASE WHEN action = 'failure' THEN 1 ELSE 0 END) OVER (
      PARTITION BY client_address, account ORDER BY time_us RANGE BETWEEN 600000000 PRECEDING AND CURRENT ROW) AS own
  FROM logins
)
SELECT principal, client_address AS address, min(listener) AS object, count(*) AS events,
  min(time_us) AS first_us, max(time_us) AS last_us,
  min_by(event_id, time_us) AS first_event, max_by(event_id, time_us) AS last_event,
  concat('after ', cast(max(failures) AS VARCHAR(20)), ' failed logins, ', cast(max(own) AS VARCHAR(20)),
    ' of this account') AS detail
FROM counted WHERE action = 'success' AND failures >= 5 AND own >= 1 GROUP BY principal, client_address
