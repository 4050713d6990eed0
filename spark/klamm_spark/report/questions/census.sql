-- title: Which client software is in use?
-- doc: By its own name and version (KIP-511). Deprecated: older than the baseline of KIP-896.
-- count: principals, addresses, requests
-- mark: status not in current
SELECT client_software_name AS software, client_software_version AS version,
  CASE WHEN {deprecated} THEN 'deprecated' ELSE 'current' END AS status,
  count(DISTINCT principal) AS principals, count(DISTINCT client_address) AS addresses,
  coalesce(sum(CASE WHEN kind = 'request' THEN requests END), 0) AS requests, max(time_us) AS last_us
FROM events WHERE client_software_name IS NOT NULL
GROUP BY client_software_name, client_software_version ORDER BY software, version
