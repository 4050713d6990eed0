"""The streaming aggregates against what plain Python counts."""

from collections import Counter, defaultdict

import pytest

from tests.spark.conftest import HOT, THRESHOLD, settings_of

MINUTE_US = 60_000_000
WINDOW_US = 300_000_000


def rows(spark, shipped, name):
    return shipped.lake.read(spark, shipped.lake.table(name)).collect()


def micros(moment):
    # Spark hands times over without a zone; the session's is UTC.
    from datetime import UTC

    return int(moment.replace(tzinfo=UTC).timestamp() * 1_000_000)


def count_of(event):
    return event.get("repeat_count", 1)


@pytest.fixture(scope="module")
def closed_us(shipped):
    """Windows that end by then are closed: the watermark is the latest event."""
    return max(event["time_us"] for event in shipped.events)


def test_traffic(spark, shipped, closed_us):
    expected = defaultdict(Counter)
    for event in shipped.events:
        minute = event["time_us"] // MINUTE_US * MINUTE_US
        if event["kind"] == "request" and minute + MINUTE_US <= closed_us:
            key = (minute, event["listener"], event["principal"], event["client_id"], event["api_name"])
            expected[key]["requests"] += count_of(event)
            expected[key]["errors"] += count_of(event) if event["error_code"] else 0
            expected[key]["denied"] += count_of(event) if event["outcome"] == "denied" else 0
            expected[key]["request_bytes"] += event["request_bytes"]
    found = {
        (micros(row.minute), row.listener, row.principal, row.client_id, row.api_name): row
        for row in rows(spark, shipped, "traffic_per_minute")
    }
    assert found.keys() == expected.keys()
    for key, counts in expected.items():
        assert {name: found[key][name] for name in counts} == dict(counts), key


def test_hot_clients(spark, shipped, closed_us):
    counts = Counter()
    for event in shipped.events:
        minute = event["time_us"] // MINUTE_US * MINUTE_US
        if event["kind"] == "request" and minute + MINUTE_US <= closed_us:
            counts[minute, event["client_id"]] += count_of(event)
    expected = {key: count for key, count in counts.items() if count >= HOT}
    found = {(micros(row.minute), row.client_id): row.requests for row in rows(spark, shipped, "hot_clients")}
    assert found == expected
    assert found


def test_denials(spark, shipped):
    expected = {event["event_id"] for event in shipped.events if event["outcome"] == "denied" and "api_key" in event}
    found = rows(spark, shipped, "denials")
    assert sorted(row.event_id for row in found) == sorted(expected)
    assert all(row.resource_name.startswith("orders-") for row in found if row.api_name != "Heartbeat")


def test_refused(spark, shipped, closed_us):
    expected = Counter(
        event["client_address"]
        for event in shipped.events
        if event["action"] == "refused" and (event["time_us"] // MINUTE_US + 1) * MINUTE_US <= closed_us
    )
    found = Counter()
    for row in rows(spark, shipped, "refused_per_minute"):
        found[row.client_address] += row.connections
    assert found == expected


def test_brute_force(spark, shipped, closed_us):
    expected = Counter()
    for event in shipped.events:
        if event["kind"] == "authentication" and event["action"] == "failure":
            last = event["time_us"] // MINUTE_US * MINUTE_US
            for start in range(last - WINDOW_US + MINUTE_US, last + 1, MINUTE_US):
                if start + WINDOW_US <= closed_us:
                    expected[start, event["client_address"]] += 1
    found = {
        (micros(row.window_start), row.client_address): row.failures for row in rows(spark, shipped, "brute_force")
    }
    assert found == {key: count for key, count in expected.items() if count >= THRESHOLD}
    assert found


def test_success_after_failures(spark, shipped):
    failures, expected = defaultdict(list), {}
    for event in shipped.events:
        if event["kind"] != "authentication":
            continue
        times = failures[event["client_address"]]
        if event["action"] == "failure":
            times.append(event["time_us"])
            continue
        recent = sum(event["time_us"] - WINDOW_US <= failed_us for failed_us in times)
        if recent >= THRESHOLD:
            expected[event["event_id"]] = recent
            times.clear()
    found = {row.event_id: row.failures for row in rows(spark, shipped, "success_after_failures")}
    assert found == expected
    assert found


def test_first_seen(spark, shipped):
    expected = set()
    for event in shipped.events:
        expected |= {("principal", event.get("principal")), ("client_address", event.get("client_address"))}
        if "client_software_name" in event:
            software = f"{event['client_software_name']} {event['client_software_version']}"
            expected.add(("client_software", software))
    found = [(row.what, row.value) for row in rows(spark, shipped, "first_seen")]
    assert sorted(found) == sorted(pair for pair in expected if pair[1])


@pytest.mark.parametrize("name", ["traffic_per_minute", "first_seen"])
def test_a_second_run_adds_what_is_new_and_nothing_twice(spark, ship, tmp_path, name):
    from klamm_spark.lake import Lake
    from klamm_spark.samples import sample_events, write_sample_spool
    from klamm_spark.tables import TABLES, start_table

    settings = settings_of(tmp_path / "lake", aggregates=False)
    lake = Lake(settings.lake, "parquet")
    (table,) = (table for table in TABLES if table.name == name)
    events = list(sample_events(600, step_us=1_000_000))
    for part in (events[:300], events[300:]):
        write_sample_spool(tmp_path / "spool", part)
        ship(tmp_path / "spool", settings)
        start_table(spark, lake, settings, table, once=True).awaitTermination()
    keys = {"traffic_per_minute": ["minute", "listener", "principal", "client_id", "api_name"]}.get(
        name, ["what", "value"]
    )
    rows = lake.read(spark, lake.table(name)).select(*keys)
    assert rows.count() == rows.distinct().count() > 0
    if name == "traffic_per_minute":
        assert rows.select("minute").distinct().count() == 9
