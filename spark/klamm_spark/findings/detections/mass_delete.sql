-- title: Mass deletion
-- severity: high
-- key: principal
-- doc: One account deleted at least 5 topics, groups, ACLs or the records of topics within 5 minutes.
-- sentence: {principal} deleted {object}: {detail}[, from {address}][ by listener {listener}]
WITH deletions AS (
  SELECT e.principal, e.client_address, e.time_us, e.event_id, r.name,
    count(*) OVER (
      PARTITION BY e.principal ORDER BY e.time_us RANGE BETWEEN 300000000 PRECEDING AND CURRENT ROW) AS within
  FROM events e JOIN resources r ON r.event_id = e.event_id
  WHERE e.api_name IN ('DeleteTopics', 'DeleteRecords', 'DeleteGroups', 'DeleteAcls', 'OffsetDelete')
    AND coalesce(r.error_code, 0) = 0 AND e.outcome IN ('ok', 'throttled')
    -- The right on the cluster is no resource that was deleted.
    AND NOT (r.type = 'CLUSTER' AND r.operation IS NOT NULL)
)
SELECT principal, min(client_address) AS address, concat(min(name), ' and others') AS object, count(*) AS events,
  min(time_us) AS first_us, max(time_us) AS last_us,
  min_by(event_id, time_us) AS first_event, max_by(event_id, time_us) AS last_event,
  concat(cast(max(within) AS VARCHAR(20)), ' deletions within 5 minutes') AS detail
FROM deletions GROUP BY principal HAVING max(within) >= 5
