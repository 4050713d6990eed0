-- title: A change whose outcome is unknown
-- severity: medium
-- doc: The server crashed between the intent of a state change and its outcome.
-- sentence: The server crashed while {principal} sent {object}[ from {address}]; {detail}
-- around: 60
SELECT principal, client_address AS address, api_name AS object, count(*) AS events, min(time_us) AS first_us,
  max(time_us) AS last_us, min_by(event_id, time_us) AS first_event, max_by(event_id, time_us) AS last_event,
  'executed or not: compare with the state of the server' AS detail
FROM events i WHERE kind = 'request' AND action = 'interrupted' AND NOT EXISTS (
  SELECT 1 FROM events c WHERE c.intent_id = i.intent_id AND c.action = 'completed')
GROUP BY principal, client_address, api_name
