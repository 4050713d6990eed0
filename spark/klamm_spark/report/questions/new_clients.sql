-- title: Who and what is new?
-- doc: Accounts, addresses and client software that are not in the period before; with --since only.
-- count: events
WITH present AS (
  SELECT 'account' AS kind, principal AS name, time_us FROM events
  UNION ALL SELECT 'address', client_address, time_us FROM events
  UNION ALL SELECT 'software', client_software_name || ' ' || client_software_version, time_us FROM events
), past AS (
  SELECT 'account' AS kind, principal AS name FROM earlier
  UNION SELECT 'address', client_address FROM earlier
  UNION SELECT 'software', client_software_name || ' ' || client_software_version FROM earlier
)
SELECT kind, name, count(*) AS events, min(time_us) AS first_us FROM present n
WHERE name IS NOT NULL AND EXISTS (SELECT 1 FROM earlier)
  AND NOT EXISTS (SELECT 1 FROM past p WHERE p.kind = n.kind AND p.name = n.name)
GROUP BY kind, name ORDER BY first_us, kind, name LIMIT 200
