-- What happened around each finding of a detection: events of its account or address, added
-- up by a forty-eighth of the time, and its first and its last event by themselves.
WITH found AS (
  SELECT *, row_number() OVER (ORDER BY last_us DESC, principal, address, object, first_us) AS n,
    {around} + least(last_us - first_us, 2400000000) / 4 AS pad FROM (
{detection}
  ) d
), named AS (
  SELECT event_id, min(name) AS name FROM resources GROUP BY event_id
), near AS (
  SELECT f.n, CASE e.event_id WHEN f.first_event THEN 'first' WHEN f.last_event THEN 'last' ELSE '' END AS part,
    floor((e.time_us - f.first_us) * 48 / (f.last_us - f.first_us + 2 * f.pad)) AS bucket,
    CASE WHEN e.kind IN ('authentication', 'connection') THEN 'logins'
      WHEN e.kind = 'request' AND e.api_key NOT IN ({administrative}) THEN 'requests' ELSE 'changes' END AS lane,
    coalesce(e.api_name, concat(replace(e.kind, 'audit_gap', 'gap'), ' ', replace(e.action, '_', ' '))) AS what,
    e.outcome, coalesce(e.attempted_principal, e.principal) AS principal, e.client_address, e.listener,
    e.time_us, e.event_id, e.requests, r.name
  FROM found f JOIN events e ON e.time_us BETWEEN f.first_us - f.pad AND f.last_us + f.pad
    AND (e.principal = f.principal OR e.client_address = f.address OR e.event_id IN (f.first_event, f.last_event))
  LEFT JOIN named r ON r.event_id = e.event_id
  WHERE f.n <= {most}
), added AS (
  SELECT n, part, lane, what, outcome, principal, client_address, listener, min(name) AS object,
    sum(requests) AS requests, min(time_us) AS time_us, min_by(event_id, time_us) AS event_id
  FROM near GROUP BY n, part, bucket, lane, what, outcome, principal, client_address, listener
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY n ORDER BY CASE WHEN part <> '' THEN 0 WHEN lane = 'changes' THEN 1
    WHEN outcome <> 'ok' THEN 2 WHEN lane = 'logins' THEN 3 ELSE 4 END, time_us, event_id) AS place FROM added
)
SELECT f.first_event, f.last_event, f.object AS found_object, f.principal AS found_principal, f.address AS found_address,
  a.time_us, a.lane, a.part, a.what, a.outcome, a.principal, a.client_address AS address, a.listener, a.object,
  a.requests, a.event_id
FROM ranked a JOIN found f ON f.n = a.n WHERE a.place <= 40 ORDER BY a.n, a.time_us, a.event_id
