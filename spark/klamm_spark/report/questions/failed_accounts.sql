-- title: Which accounts failed to log in?
-- doc: By the account that was claimed, or the subject of a refused certificate. Nothing proves either.
-- count: failures, addresses
SELECT coalesce(attempted_principal, certificate_subject, '(unknown)') AS account, sasl_mechanism, count(*) AS failures,
  count(DISTINCT client_address) AS addresses, min(time_us) AS first_us, max(time_us) AS last_us
FROM events WHERE kind = 'authentication' AND action IN ('failure', 'reauthentication_failure')
GROUP BY 1, 2 ORDER BY failures DESC, account, coalesce(sasl_mechanism, '') LIMIT 15
