"""The state of one address, without a JVM: Spark's own tester of processors gives it micro-batches."""

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from klamm_spark.lake.tables import LoginsOfAddress

WINDOW_US = 600_000_000
READ_TIME_MS = 1_767_225_600_000
REMEMBERED_MS = 3_600_000 + WINDOW_US // 1000


@pytest.fixture
def tester():
    return TwsTester(
        LoginsOfAddress(threshold=3, window_us=WINDOW_US),
        timeMode="EventTime",
        eventTimeExtractor=lambda row: row.read_time_ms,
    )


def logins(*times_us, failed, read_time_ms=READ_TIME_MS):
    return [
        Row(
            read_time_ms=read_time_ms,
            time_us=time_us,
            client_address="10.0.0.9",
            listener="public",
            principal="User:ada",
            event_id=f"event-{time_us}",
            failed=failed,
        )
        for time_us in times_us
    ]


def found(tester, rows):
    return [(row.event_id, row.failures) for row in tester.test(("10.0.0.9",), rows)]


def test_failures_of_earlier_batches_count(tester):
    assert found(tester, logins(1, 2, failed=True)) == []
    assert found(tester, logins(3, failed=True)) == []
    assert found(tester, logins(4, failed=False)) == [("event-4", 3)]


def test_a_success_is_reported_once(tester):
    assert found(tester, logins(1, 2, 3, failed=True) + logins(4, 5, failed=False)) == [("event-4", 3)]
    assert found(tester, logins(6, failed=False)) == []


@pytest.mark.parametrize(("after_us", "rows"), [(WINDOW_US, [(f"event-{WINDOW_US + 1}", 3)]), (WINDOW_US + 1, [])])
def test_failures_count_within_the_window(tester, after_us, rows):
    assert found(tester, logins(1, 2, 3, failed=True) + logins(1 + after_us, failed=False)) == rows


def test_the_order_is_that_of_the_events(tester):
    rows = logins(4, failed=False) + logins(3, 1, 2, failed=True)
    assert found(tester, rows) == [("event-4", 3)]
    assert found(tester, logins(5, failed=False)) == []


def test_failures_after_a_success_do_not_count_for_it(tester):
    assert found(tester, logins(5, 6, 7, failed=True) + logins(4, failed=False)) == []
    # A server that was away sends what happened later.
    assert found(tester, logins(8, failed=False)) == [("event-8", 3)]


def test_the_state_has_the_latest_thousand_failures(tester):
    found(tester, logins(*range(5000), failed=True))
    kept = tester.peekListState("failures", ("10.0.0.9",))
    assert [time_us for (time_us,) in kept] == list(range(4000, 5000))


def test_an_address_that_has_logged_in_has_no_state(tester):
    found(tester, logins(1, 2, 3, failed=True) + logins(4, failed=False))
    assert tester.peekListState("failures", ("10.0.0.9",)) == []


def test_failures_are_forgotten_an_hour_and_a_window_after_the_last_was_read(tester):
    found(tester, logins(1, 2, failed=True))
    tester.setWatermark(READ_TIME_MS + 1000)
    found(tester, logins(3, failed=True, read_time_ms=READ_TIME_MS + 2000))
    tester.setWatermark(READ_TIME_MS + REMEMBERED_MS + 1000)
    assert len(tester.peekListState("failures", ("10.0.0.9",))) == 3
    tester.setWatermark(READ_TIME_MS + REMEMBERED_MS + 2001)
    assert tester.peekListState("failures", ("10.0.0.9",)) == []
