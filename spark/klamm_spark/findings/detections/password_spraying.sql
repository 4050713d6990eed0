-- title: Password spraying
-- severity: high
-- key: address
-- doc: Failed logins of at least 5 accounts from one address within 10 minutes.
-- sentence: {address} tried the passwords of several accounts: {detail}[, by listener {listener}]
-- around: 60
WITH failures AS (
  SELECT client_address, attempted_principal, time_us, event_id, listener
  FROM events
  WHERE kind = 'authentication' AND action = 'failure' AND attempted_principal IS NOT NULL
), pairs AS (
  SELECT a.client_address, a.event_id, a.time_us, min(a.listener) AS listener,
    min(a.attempted_principal) AS attempted_principal,
    count(DISTINCT b.attempted_principal) AS accounts
  FROM (
    SELECT client_address, attempted_principal, listener, max(time_us) AS time_us, max_by(event_id, time_us) AS event_id
    FROM failures GROUP BY client_address, attempted_principal, listener
  ) a JOIN (
    SELECT client_address, attempted_principal, time_us FROM failures
  ) b ON a.client_address = b.client_address AND b.time_us <= a.time_us AND b.time_us > a.time_us - 600000000
  GROUP BY a.client_address, a.event_id, a.time_us
)
SELECT '' AS principal, client_address AS address, min(listener) AS object, count(*) AS events,
  min(time_us) AS first_us, max(time_us) AS last_us,
  min_by(event_id, time_us) AS first_event, max_by(event_id, time_us) AS last_event,
  concat(cast(max(accounts) AS VARCHAR(20)), ' accounts tried within 10 minutes, among them ',
    min(attempted_principal), ' and ', max(attempted_principal)) AS detail
FROM pairs GROUP BY client_address HAVING max(accounts) >= 5
