-- title: From where did logins fail?
-- doc: Failed authentications by address and reason.
-- count: accounts, failures
SELECT listener, client_address, count(DISTINCT attempted_principal) AS accounts, sasl_mechanism,
  coalesce(reason, error_name) AS reason, count(*) AS failures, max(time_us) AS last_us
FROM events WHERE kind = 'authentication' AND action IN ('failure', 'reauthentication_failure')
GROUP BY listener, client_address, sasl_mechanism, coalesce(reason, error_name)
ORDER BY failures DESC, client_address, listener, reason LIMIT 15
