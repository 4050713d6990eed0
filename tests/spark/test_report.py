"""Compares the report's counts with those of plain Python, and checks its text."""

import os
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import BAD_LINES, EVENTS
from tests.spark.sessions import rows_of


@pytest.fixture(scope="module")
def report(shipped):
    from klamm_spark.report.command import build

    return build(shipped.lake)


def test_totals_are_those_of_the_events(report, shipped):
    outcomes, actions = Counter(), Counter()
    for event in shipped.events:
        if event["kind"] == "request":
            outcomes[event["outcome"]] += event.get("repeat_count", 1)
        else:
            actions[event["kind"], event["action"]] += 1
    totals = report.totals
    assert {name: totals[name] for name in ("ok", "throttled", "denied", "error")} == dict(outcomes)
    assert totals["requests"] == sum(outcomes.values())
    assert totals["events"] == EVENTS
    assert totals["authenticated"] == actions["authentication", "success"]
    assert totals["authentication failures"] == actions["authentication", "failure"]
    assert totals["connections refused"] == actions["connection", "refused"]
    assert totals["lines in quarantine"] == len(BAD_LINES)
    requests = [event for event in shipped.events if event["kind"] == "request"]
    assert totals["request bytes"] == sum(event["request_bytes"] for event in requests)


def test_counts_of_listeners_add_up_to_the_totals(report):
    table = report.tables["listeners"]
    for place, column in enumerate(table.columns[1:], 1):
        assert sum(row[place] for row in table.rows) == report.totals[column.title]


def test_values_of_plots_add_up_to_the_totals(report):
    assert sum(sum(counts.values()) for _, counts in report.traffic) == report.totals["requests"]
    failures = sum(counts.get("failure", 0) for _, counts in report.logins)
    assert failures == report.totals["authentication failures"]


def test_percentiles_count_aggregated_rows_by_their_weight(report, shipped):
    times = []
    for event in shipped.events:
        if event.get("api_name") == "Fetch":
            times += [round(event["total_time_ms"], 2)] * event.get("repeat_count", 1)
    times.sort()
    (row,) = (row for row in report.tables["latency"].rows if row[0] == "Fetch")
    assert row[1] == len(times)
    for value, part in zip(row[2:5], (0.5, 0.95, 0.99), strict=True):
        assert abs(value - times[int(part * (len(times) - 1))]) < 0.02


def test_changes_are_those_of_the_latest_requests(report, shipped):
    table = report.tables["changes"]
    made = [event for event in shipped.events if event.get("api_name") == "CreateTopics"]
    latest = sorted(made, key=lambda event: event["time_us"])[-len(table.rows) :]
    assert len(table.rows) > 10
    assert [row[1] for row in table.rows] == [event["principal"] for event in latest]
    assert [row[3] for row in table.rows] == [event["listener"] for event in latest]
    assert {row[4] for row in table.rows} == {"CreateTopics"}


def test_old_clients_are_marked(report):
    table = report.tables["census"]
    assert {row[:3] for row in table.rows} == {
        ("apache-kafka-java", "4.3.1", "current"),
        ("librdkafka", "1.6.1", "deprecated"),
        ("librdkafka", "2.8.0", "current"),
        ("kafka-python", "2.0.4", "current"),
    }
    assert [table.rows[index][:2] for index in table.marked] == [("librdkafka", "1.6.1")]


def test_counts_of_apis_add_up_to_those_of_the_listeners(report, shipped):
    table, names = report.tables["apis"], ["requests", "ok", "throttled", "denied", "error"]
    assert [column.title for column in table.columns[2:]] == names
    counts, listeners = Counter(), {}
    for row in table.rows:
        counts += Counter({(row[0], name): count for name, count in zip(names, row[2:], strict=True)})
    for row in report.tables["listeners"].rows:
        listeners |= {(row[0], name): count for name, count in zip(names, row[1:6], strict=True)}
    assert counts == Counter(listeners)
    denied = sum(event["outcome"] == "denied" for event in shipped.events if event.get("api_name") == "Produce")
    assert sum(row[5] for row in table.rows if row[1] == "Produce") == denied


def test_since_counts_only_later_events(spark, shipped):
    from klamm_spark.errors import LakeError
    from klamm_spark.queries.event_views import Period, SparkViews
    from klamm_spark.report.command import build

    middle = int(datetime(2026, 1, 1, 0, 5, tzinfo=UTC).timestamp() * 1_000_000)
    views = SparkViews(spark, rows_of(spark, shipped.lake), Period(middle, before_us=middle - 60_000_000))
    times = [event["time_us"] for event in shipped.events]
    assert views.query("SELECT count(*) FROM events").rows == [(sum(middle <= time for time in times),)]
    earlier = sum(middle - 60_000_000 <= time < middle for time in times)
    assert views.query("SELECT count(*) FROM earlier").rows == [(earlier,)]
    with pytest.raises(LakeError, match="no events in .* since 2026-06-01"):
        build(shipped.lake, datetime(2026, 6, 1, tzinfo=UTC))


def test_a_lake_and_its_spool_have_the_same_report(report, shipped, tmp_path):
    from klamm_spark.queries.event_views import DuckDbViews, Period
    from klamm_spark.report.command import answer
    from tests.audit_samples import write_sample_spool

    write_sample_spool(tmp_path, shipped.events)
    views = DuckDbViews(tmp_path, Period())
    same = answer(views, "spool")
    views.close()
    assert same.totals == report.totals | {"lines in quarantine": 0}
    assert (same.traffic, same.logins, same.cards) == (report.traffic, report.logins, report.cards)
    assert any(card.moments for card in same.cards)
    for key, table in report.tables.items():
        assert (same.tables[key].columns, same.tables[key].marked) == (table.columns, table.marked), key
        assert len(same.tables[key].rows) == len(table.rows), key
        for mine, theirs in zip(same.tables[key].rows, table.rows, strict=True):
            for left, right in zip(mine, theirs, strict=True):
                assert left == (pytest.approx(right, rel=1e-9) if isinstance(right, float) else right), key


def test_the_number_of_bars_is_limited():
    from klamm_spark.report.command import bucket_of

    for span in (timedelta(seconds=30), timedelta(hours=5), timedelta(days=20)):
        assert 1 <= span.total_seconds() / bucket_of(span.total_seconds()) <= 90


def test_text_of_the_report_has_each_table_with_rows(report):
    from rich.console import Console

    from klamm_spark.report import text as report_text

    console = Console(width=180, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    report_text.show(report, console)
    text = console.export_text()
    assert f"{report.totals['requests']:,}" in text
    for table in report.tables.values():
        assert (table.title in text) == bool(table.rows)


@pytest.mark.parametrize(("columns", "width"), [(None, 140), ("60", 60)])
def test_the_text_in_a_pipe_is_wide_enough_for_its_tables(report, monkeypatch, capsys, columns, width):
    from klamm_spark.report import text as report_text

    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    report_text.show(report)
    assert max(map(len, capsys.readouterr().out.splitlines())) == width


def test_a_closed_pipe_of_the_text_does_not_stop_the_page(tmp_path, monkeypatch):
    from klamm_spark.report import command as report

    def stopped(_report):
        raise BrokenPipeError

    write_sample_spool(tmp_path / "spool", sample_events(100))
    monkeypatch.setattr(report, "show", stopped)
    with pytest.raises(BrokenPipeError):
        report.run(tmp_path / "spool", since=None, html=tmp_path / "report.html", print_line=print)
    assert "<html" in (tmp_path / "report.html").read_text()
