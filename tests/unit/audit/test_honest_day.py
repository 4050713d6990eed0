"""A day of normal traffic has no critical finding. Many tries of a password cause one."""

from collections import Counter

import pytest

from klamm_spark.findings.detections import Rules
from klamm_spark.queries.event_views import DuckDbViews, Period
from klamm_spark.spool.layout import stream_mark
from tests.audit_spool import events_of
from tests.unit.audit.honest_day import HonestDay

pytest.importorskip("duckdb")


def findings_of(spool):
    views = DuckDbViews(spool, Period())
    try:
        return [(detection.severity, detection.name, finding) for detection, finding in Rules().findings(views)]
    finally:
        views.close()


@pytest.mark.timeout(600)
def test_a_day_of_normal_traffic_has_no_critical_finding(tmp_path):
    day = HonestDay(tmp_path)
    day.play()
    events = events_of(day.spool)
    assert max(event["time_us"] for event in events) - min(event["time_us"] for event in events) > 22 * 3_600_000_000
    happened = Counter(event.get("api_name") or f"{event['kind']} {event['action']}" for event in events)
    assert happened["authentication failure"] == 1
    assert happened["CreateDelegationToken"] == 1
    assert happened["RenewDelegationToken"] == 3
    assert happened["CreateAcls"] == 3
    assert {"Produce", "Fetch", "OffsetCommit", "ConsumerGroupHeartbeat", "CreateTopics"} <= happened.keys()
    assert len({event["boot"] for event in events if not stream_mark(event["boot"])}) == 2
    found = findings_of(day.spool)
    assert [each for each in found if each[0] in ("critical", "high")] == []


@pytest.mark.timeout(600)
def test_many_tries_of_a_password_cause_a_critical_finding(tmp_path):
    day = HonestDay(tmp_path, mistakes=6)
    day.play()
    ((_, name, finding),) = (each for each in findings_of(day.spool) if each[0] == "critical")
    assert (name, finding.principal) == ("success_after_failures", "User:analyst")
