"""`klamm audit report`: counts the events of a period into plain tables, for text and HTML.

Everything is counted from `events`, with the requests that an aggregated row represents; only the two tables of
brute force come from the streaming aggregates. The queries use only what Spark Connect supports.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from klamm_spark.api_classes import ADMINISTRATIVE
from klamm_spark.client_versions import is_deprecated
from klamm_spark.event import ADMIN, AUDIT_GAP, AUTHENTICATION, CONNECTION, REQUEST, TIME_FIELDS
from klamm_spark.lake import Lake, LakeError
from klamm_spark.report_model import OUTCOMES, Heading, Report, Table
from klamm_spark.report_text import show
from klamm_spark.spark_settings import Pipeline
from klamm_spark.tables import requests

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TOP: Final = 15
TIMELINE: Final = 200
STAGES: Final = tuple(name for name in TIME_FIELDS if name != "total_time_ms")
_BUCKETS_S: Final = (1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400)
_WANTED_BUCKETS: Final = 90
_NO_TABLE: Final = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND")


def run(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    since: datetime | None,
    html: Path | None,
    print_line: Callable[[str], None],
) -> int:
    """Print the report, and write it to `html` if given; the exit code. Raises LakeError."""
    remote = bool(pipeline.settings.remote)
    report = build(spark, Lake.of(pipeline.settings, None if remote else spark), since, remote=remote)
    show(report)
    if html is not None:
        from klamm_spark import report_html

        html.write_text(report_html.render(report), encoding="utf-8")
        print_line(f"written: {html} ({html.stat().st_size / 1024:,.0f} KiB)")
    return 0


def build(spark: SparkSession, lake: Lake, since: datetime | None = None, *, remote: bool = False) -> Report:
    """Count everything. `remote` says that the lake is on another machine. Raises LakeError if there are no events."""
    if not remote:
        lake.require_events()
    rows = lake.read(spark)
    bad_lines = rows.where("date is null").count()
    events = rows.where("date is not null")
    if since is not None:
        events = events_since(events, since)
    span = events.agg(F.min("time_us").alias("first"), F.max("time_us").alias("last")).collect()[0]
    if span["first"] is None:
        raise LakeError(f"there are no events in {lake.root}" + (f" since {since:%Y-%m-%d %H:%M} UTC" if since else ""))
    first, last = (datetime.fromtimestamp(span[name] / 1e6, UTC) for name in ("first", "last"))
    bucket_s = bucket_of((last - first).total_seconds())
    tables = [build_table(events) for build_table in _TABLES]
    for name in ("brute_force", "success_after_failures"):
        tables += _alerts(spark, lake, name, since, remote=remote)
    return Report(
        lake=str(lake.root),
        since=since,
        first=first,
        last=last,
        totals=_totals(events) | {"lines in quarantine": bad_lines},
        tables={table.key: table for table in tables},
        bucket_s=bucket_s,
        traffic=_series(events.where(F.col("kind") == REQUEST), "outcome", bucket_s),
        logins=_series(events.where(F.col("kind") == AUTHENTICATION), "action", bucket_s),
    )


def events_since(events: DataFrame, since: datetime) -> DataFrame:
    """Events at that time or later. The filter on the partition keeps Spark from opening files of other days."""
    return events.where((F.col("date") >= F.lit(since.astimezone(UTC).date())) & (F.col("time") >= F.lit(since)))


def bucket_of(span_s: float) -> int:
    """Seconds of one bar of a plot over `span_s`."""
    return next((bucket for bucket in _BUCKETS_S if span_s / bucket <= _WANTED_BUCKETS), _BUCKETS_S[-1])


# ---- the parts of a report


def _sum_if(condition: Column) -> Column:
    return F.coalesce(F.sum(F.when(condition, requests())), F.lit(0))


def _is(kind: str, *actions: str) -> Column:
    found = F.col("kind") == kind
    return found & F.col("action").isin(*actions) if actions else found


def _counts() -> dict[str, Column]:
    request = _is(REQUEST)
    return {
        "requests": _sum_if(request),
        **{outcome: _sum_if(request & (F.col("outcome") == outcome)) for outcome in OUTCOMES},
        "authenticated": _sum_if(_is(AUTHENTICATION, "success")),
        "authentication failures": _sum_if(_is(AUTHENTICATION, "failure", "reauthentication_failure")),
        "connections": _sum_if(_is(CONNECTION, "opened")),
        "connections refused": _sum_if(_is(CONNECTION, "refused")),
    }


def _totals(events: DataFrame) -> dict[str, int]:
    columns = {
        "events": F.count(F.lit(1)),
        **_counts(),
        "request bytes": F.coalesce(F.sum(F.when(_is(REQUEST), F.col("request_bytes"))), F.lit(0)),
        "response bytes": F.coalesce(F.sum(F.when(_is(REQUEST), F.col("response_bytes"))), F.lit(0)),
    }
    row = events.agg(*(column.alias(name) for name, column in columns.items())).collect()[0]
    return {name: int(row[name]) for name in columns}


def _series(events: DataFrame, by: str, bucket_s: int) -> tuple[tuple[datetime, dict[str, int]], ...]:
    start = (F.floor(F.col("time_us") / (bucket_s * 1_000_000)) * bucket_s).alias("start")
    found: dict[int, dict[str, int]] = {}
    for row in events.groupBy(start, by).agg(F.sum(requests()).alias("n")).collect():
        found.setdefault(int(row["start"]), {})[row[by]] = int(row["n"])
    if not found:
        return ()
    starts = range(min(found), max(found) + bucket_s, bucket_s)
    return tuple((datetime.fromtimestamp(moment, UTC), found.get(moment, {})) for moment in starts)


def _table(
    key: str,
    title: str,
    doc: str,
    frame: DataFrame,
    kinds: dict[str, str],
    mark: Callable[[tuple[Any, ...]], bool] = lambda row: False,
) -> Table:
    """A table of a data frame's rows; `kinds` are those of columns that are not text."""
    rows = tuple(tuple(row) for row in frame.collect())
    columns = tuple(Heading(name.replace("_", " "), kinds.get(name, "text")) for name in frame.columns)
    return Table(key, title, doc, columns, rows, frozenset(index for index, row in enumerate(rows) if mark(row)))


def _listeners(events: DataFrame) -> Table:
    counts = _counts()
    frame = events.where("listener is not null").groupBy("listener").agg(*(c.alias(n) for n, c in counts.items()))
    kinds = dict.fromkeys(counts, "count")
    doc = "Requests, authentications and connections of each listener."
    return _table("listeners", "Listeners", doc, frame.orderBy("listener"), kinds)


def _apis(events: DataFrame) -> Table:
    counts = {name: column for name, column in _counts().items() if name == "requests" or name in OUTCOMES}
    frame = (
        events.where(_is(REQUEST))
        .groupBy("listener", "api_name")
        .agg(*(column.alias(name) for name, column in counts.items()))
        .orderBy("listener", F.desc("requests"), "api_name")
    )
    doc = "How the requests of each API were answered."
    return _table("apis", "APIs by listener", doc, frame, dict.fromkeys(counts, "count"))


def _percentile(name: str, part: float) -> Column:
    # To ten microseconds, so that the counts of distinct values stay small.
    return F.percentile(F.round(name, 2), part, requests())


def _latency(events: DataFrame) -> Table:
    parts = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    frame = (
        events.where(_is(REQUEST))
        .groupBy("api_name")
        .agg(
            F.sum(requests()).alias("requests"),
            *(_percentile("total_time_ms", part).alias(name) for name, part in parts.items()),
            F.max(F.coalesce("total_time_max_ms", "total_time_ms")).alias("max"),
        )
        .orderBy(F.desc("requests"), "api_name")
    )
    kinds = {"requests": "count", **dict.fromkeys((*parts, "max"), "ms")}
    doc = "From receipt until the last byte of the response was written. Aggregated rows count with their means."
    return _table("latency", "Latency by API", doc, frame, kinds)


def _stage_table(events: DataFrame, key: str, title: str, doc: str, of: Callable[[str], Column]) -> Table:
    names = {stage: stage.removesuffix("_time_ms") for stage in STAGES}
    frame = (
        events.where(_is(REQUEST))
        .groupBy("api_name")
        .agg(F.sum(requests()).alias("requests"), *(of(stage).alias(name) for stage, name in names.items()))
        .orderBy(F.desc("requests"), "api_name")
        .drop("requests")
    )
    return _table(key, title, doc, frame, dict.fromkeys(names.values(), "ms"))


def _stages_p99(events: DataFrame) -> Table:
    doc = "The 99th percentile of each stage of a request."
    return _stage_table(events, "stages_p99", "Stages, p99", doc, lambda stage: _percentile(stage, 0.99))


def _stages_mean(events: DataFrame) -> Table:
    def mean(stage: str) -> Column:
        return F.sum(F.col(stage) * requests()) / F.sum(requests())

    return _stage_table(events, "stages_mean", "Stages, mean", "Where the time of a request goes.", mean)


def _talkers(events: DataFrame) -> Table:
    frame = (
        events.where(_is(REQUEST))
        .groupBy("principal", "client_id")
        .agg(
            F.countDistinct("client_address").alias("addresses"),
            F.sum(requests()).alias("requests"),
            F.sum("request_bytes").alias("bytes_in"),
            F.sum("response_bytes").alias("bytes_out"),
            _sum_if(F.col("error_code") != 0).alias("errors"),
        )
        .orderBy(F.desc("requests"), "principal", "client_id")
        .limit(TOP)
    )
    kinds = {"addresses": "count", "requests": "count", "bytes_in": "bytes", "bytes_out": "bytes", "errors": "count"}
    return _table("talkers", "Top talkers", f"The {TOP} clients with the most requests.", frame, kinds)


def _denials(events: DataFrame) -> Table:
    denied = F.filter("resources", lambda resource: ~F.coalesce(resource.granted, F.lit(True)))
    frame = (
        events.where(_is(REQUEST) & (F.col("outcome") == "denied"))
        .withColumn("resource", F.get(denied, F.lit(0)))
        .groupBy(
            "listener",
            "principal",
            "api_name",
            F.concat_ws(" ", "resource.type", "resource.name").alias("resource"),
            F.col("resource.operation").alias("operation"),
            F.col("error_name").alias("error"),
        )
        .agg(F.sum(requests()).alias("requests"), F.max("time").alias("last"))
        .orderBy(F.desc("requests"), "principal", "resource")
        .limit(TOP)
    )
    doc = "Requests that the authorizer refused, by the first resource that was denied."
    return _table("denials", "Denials", doc, frame, {"requests": "count", "last": "time"}, mark=lambda row: True)


def _failures(events: DataFrame) -> Table:
    failed = events.where(_is(AUTHENTICATION, "failure", "reauthentication_failure"))
    frame = _by_address(
        failed, "failures", "attempted_principal", "sasl_mechanism", F.coalesce("reason", "error_name").alias("reason")
    )
    doc = "Authentications that failed, by where they came from."
    return _table("failures", "Authentication failures", doc, frame, {"failures": "count", "last": "time"})


def _by_address(events: DataFrame, count: str, *columns: str | Column) -> DataFrame:
    """The addresses that most events came from: how many, and when the last."""
    return (
        events.groupBy("listener", "client_address", *columns)
        .agg(F.count(F.lit(1)).alias(count), F.max("time").alias("last"))
        .orderBy(F.desc(count), "client_address")
        .limit(TOP)
    )


def _errors(events: DataFrame) -> Table:
    frame = (
        events.where(_is(REQUEST) & (F.col("error_code") != 0) & (F.col("outcome") != "denied"))
        .groupBy("api_name", F.col("error_name").alias("error"))
        .agg(F.sum(requests()).alias("requests"), F.countDistinct("principal").alias("principals"))
        .orderBy(F.desc("requests"), "api_name")
        .limit(TOP)
    )
    doc = "Requests that were answered with an error other than a denial."
    return _table("errors", "Errors", doc, frame, {"requests": "count", "principals": "count"})


def _refused(events: DataFrame) -> Table:
    frame = _by_address(events.where(_is(CONNECTION, "refused")), "connections", "reason")
    doc = "Connections that were refused before a request."
    return _table("refused", "Refused connections", doc, frame, {"connections": "count", "last": "time"})


def _throttled(events: DataFrame) -> Table:
    frame = (
        events.where(_is(REQUEST) & (F.col("throttle_time_ms") > 0))
        .groupBy("principal", "client_id", "api_name")
        .agg(
            F.sum(requests()).alias("requests"),
            F.sum(F.col("throttle_time_ms") * requests()).alias("throttle_time"),
            F.max("throttle_time_ms").alias("longest"),
        )
        .orderBy(F.desc("throttle_time"), "principal")
        .limit(TOP)
    )
    kinds = {"requests": "count", "throttle_time": "ms", "longest": "ms"}
    return _table("throttled", "Throttled principals", "Clients that were throttled, and for how long.", frame, kinds)


def _census(events: DataFrame) -> Table:
    frame = (
        events.where(F.col("client_software_name").isNotNull())
        .groupBy(F.col("client_software_name").alias("software"), F.col("client_software_version").alias("version"))
        .agg(
            F.countDistinct("principal").alias("principals"),
            F.countDistinct("client_address").alias("addresses"),
            _sum_if(_is(REQUEST)).alias("requests"),
            F.max("time").alias("last"),
        )
        .orderBy("software", "version")
    )
    rows = tuple((*row[:2], "deprecated" if is_deprecated(row[0], row[1]) else "", *row[2:]) for row in frame.collect())
    columns = (
        Heading("software"),
        Heading("version"),
        Heading("status"),
        *(Heading(name, "count") for name in ("principals", "addresses", "requests")),
        Heading("last", "time"),
    )
    doc = "Client software by its own name and version (KIP-511). Deprecated: older than the baseline of KIP-896."
    marked = frozenset(index for index, row in enumerate(rows) if row[2])
    return Table("census", "Client software", doc, columns, rows, marked)


def _admin(events: DataFrame) -> Table:
    frame = (
        events.where(_is(ADMIN))
        .orderBy(F.desc("time_us"))
        .limit(TIMELINE)
        .select("time", "node", "action", "listener", "outcome", F.coalesce("detail", "reason").alias("detail"))
        .orderBy("time")
    )
    doc = f"The latest {TIMELINE} administrative events."
    return _table("admin", "Administration", doc, frame, {"time": "time"}, mark=lambda row: row[4] != "ok")


def _changes(events: DataFrame) -> Table:
    named = F.transform("resources", lambda resource: F.concat_ws(" ", resource["type"], resource["name"]))
    frame = (
        events.where(_is(REQUEST) & F.col("api_key").isin(*sorted(ADMINISTRATIVE)) & (requests() > 0))
        .orderBy(F.desc("time_us"))
        .limit(TIMELINE)
        .select(
            "time",
            "principal",
            "client_address",
            "api_name",
            F.array_join(F.slice(named, 1, 3), ", ").alias("resources"),
            "outcome",
            F.col("error_name").alias("error"),
        )
        .orderBy("time")
    )
    doc = (
        f"The latest {TIMELINE} requests that created, altered or deleted something, with their first three resources."
    )
    return _table(
        "changes", "Changes", doc, frame, {"time": "time"}, mark=lambda row: row[5] not in ("ok", "throttled")
    )


def _interrupted(events: DataFrame) -> Table:
    named = F.transform("resources", lambda resource: F.concat_ws(" ", resource["type"], resource["name"]))
    frame = (
        events.where(_is(REQUEST, "interrupted"))
        .orderBy(F.desc("time_us"))
        .limit(TIMELINE)
        .select(
            "time",
            "principal",
            "client_address",
            "api_name",
            F.array_join(F.slice(named, 1, 3), ", ").alias("resources"),
            "event_id",
        )
        .orderBy("time")
    )
    doc = "State changes that a crash interrupted: the trail has what was asked for, and not what became of it."
    return _table("interrupted", "Changes without an outcome", doc, frame, {"time": "time"}, mark=lambda row: True)


def _gaps(events: DataFrame) -> Table:
    frame = (
        events.where(_is(AUDIT_GAP))
        .orderBy(F.desc("time_us"))
        .limit(TIMELINE)
        .select(
            "time",
            "node",
            "action",
            F.coalesce("reason", "detail").alias("reason"),
            F.col("gap_boot").alias("boot"),
            F.col("gap_first_seq").alias("first"),
            F.col("gap_last_seq").alias("last_missing"),
            F.col("gap_count").alias("events"),
        )
        .orderBy("time")
    )
    doc = "Missing events that the server reported. `klamm audit verify` finds those that it did not."
    return _table("gaps", "Gaps", doc, frame, {"time": "time", "events": "count"}, mark=lambda row: True)


def _alert_rows(spark: SparkSession, lake: Lake, name: str, *, remote: bool) -> DataFrame | None:
    """A table of aggregates; None if it has not been written. In a remote lake only Spark can find out."""
    if not remote:
        return lake.read(spark, lake.table(name)) if lake.has_table(name) else None
    try:
        rows = lake.read(spark, lake.table(name))
        # The server resolves the table here.
        rows.schema  # noqa: B018
    except AnalysisException as error:
        if error.getCondition() in _NO_TABLE:
            return None
        raise
    return rows


def _alerts(spark: SparkSession, lake: Lake, name: str, since: datetime | None, *, remote: bool) -> list[Table]:
    rows = _alert_rows(spark, lake, name, remote=remote)
    if rows is None:
        return []
    if name == "brute_force":
        rows = rows if since is None else rows.where(F.col("window_end") >= F.lit(since))
        frame = (
            rows.groupBy("client_address")
            .agg(
                F.max("failures").alias("failures"),
                F.min("window_start").alias("from"),
                F.max("window_end").alias("until"),
                F.array_join(F.array_distinct(F.flatten(F.collect_set("listeners"))), ", ").alias("listeners"),
            )
            .orderBy(F.desc("failures"), "client_address")
            .limit(TOP)
        )
        kinds = {"failures": "count", "from": "time", "until": "time"}
        doc = "Addresses with too many failed authentications in one window, by the worst of them."
        return [_table(name, "Brute force", doc, frame, kinds, mark=lambda row: True)]
    rows = rows if since is None else rows.where(F.col("time") >= F.lit(since))
    frame = (
        rows.select("time", "client_address", "listener", "principal", "failures").orderBy(F.desc("time")).limit(TOP)
    )
    doc = "Addresses that logged in after many failures: a guessed password, or a corrected configuration."
    kinds = {"time": "time", "failures": "count"}
    return [_table(name, "Success after failures", doc, frame, kinds, mark=lambda row: True)]


_TABLES: Final = (
    _listeners,
    _apis,
    _latency,
    _stages_p99,
    _stages_mean,
    _talkers,
    _denials,
    _failures,
    _errors,
    _refused,
    _throttled,
    _census,
    _admin,
    _changes,
    _interrupted,
    _gaps,
)
