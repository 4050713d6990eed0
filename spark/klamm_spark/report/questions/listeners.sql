-- title: How much came through each listener?
-- doc: Requests, authentications and connections of each listener.
-- count: all
SELECT listener, {counts} FROM events WHERE listener IS NOT NULL GROUP BY listener ORDER BY listener
