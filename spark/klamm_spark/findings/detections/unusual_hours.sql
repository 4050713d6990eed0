-- title: Access at unusual hours
-- severity: medium
-- key: principal
-- doc: An account that was active on at least 3 days came in an hour of the day (UTC) at least 3 hours away from all earlier ones.
-- sentence: {principal} came {detail}, hours away from its habit[, from {address}][ by listener {listener}]
WITH used AS (
  SELECT principal, cast(floor(time_us / 86400000000.0) AS BIGINT) AS day,
    cast(floor(time_us / 3600000000.0) AS BIGINT) % 24 AS hour, min(time_us) AS first_us, max(time_us) AS last_us,
    min_by(event_id, time_us) AS first_event, max_by(event_id, time_us) AS last_event,
    min(client_address) AS address, sum(requests) AS requests
  FROM events WHERE kind IN ('request', 'authentication') AND principal IS NOT NULL GROUP BY 1, 2, 3
), distances AS (
  SELECT n.principal, n.day, n.hour, n.first_us, n.last_us, n.first_event, n.last_event, n.address, n.requests,
    count(DISTINCT o.day) AS days, min(CASE
      WHEN abs(n.hour - o.hour) <= 12 THEN abs(n.hour - o.hour) ELSE 24 - abs(n.hour - o.hour) END) AS distance
  FROM used n JOIN used o ON o.principal = n.principal AND o.day < n.day
  GROUP BY n.principal, n.day, n.hour, n.first_us, n.last_us, n.first_event, n.last_event, n.address, n.requests
)
SELECT principal, min(address) AS address, '' AS object, sum(requests) AS events,
  min(first_us) AS first_us, max(last_us) AS last_us,
  min_by(first_event, first_us) AS first_event, max_by(last_event, last_us) AS last_event,
  concat('at ', cast(min(hour) AS VARCHAR(20)), ' o''clock UTC') AS detail
FROM distances WHERE days >= 3 AND distance >= 3 GROUP BY principal
