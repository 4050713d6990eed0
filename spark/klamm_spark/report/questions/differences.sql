-- title: Who did more, or less?
-- doc: The accounts whose requests differ most from those of the period before; with --since only.
-- count: requests, before, denied, denied_before, changes, changes_before
WITH requested AS (
  SELECT principal, requests, 0 AS earlier, outcome, api_key FROM events WHERE kind = 'request'
  UNION ALL SELECT principal, 0, requests, outcome, api_key FROM earlier WHERE kind = 'request'
), counted AS (
  SELECT principal, sum(requests) AS requests, sum(earlier) AS before,
    sum(CASE WHEN outcome = 'denied' THEN requests ELSE 0 END) AS denied,
    sum(CASE WHEN outcome = 'denied' THEN earlier ELSE 0 END) AS denied_before,
    sum(CASE WHEN api_key IN ({administrative}) THEN requests ELSE 0 END) AS changes,
    sum(CASE WHEN api_key IN ({administrative}) THEN earlier ELSE 0 END) AS changes_before
  FROM requested GROUP BY principal
)
SELECT principal, requests, before, denied, denied_before, changes, changes_before FROM counted
WHERE EXISTS (SELECT 1 FROM earlier) AND (requests, denied, changes) <> (before, denied_before, changes_before)
ORDER BY abs(denied - denied_before) DESC, abs(changes - changes_before) DESC, abs(requests - before) DESC, principal
LIMIT 15
