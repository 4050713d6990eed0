"""Streaming aggregates of the lake, each in a table of its own.

They read what `ship` has committed. The watermark is on the time at which a query reads an event, not on the time of
the event: no server is late, however long it was away. So the counts of a minute are in as many rows as there were
micro-batches with events of it, and readers add them up, as the views of `VIEWS` do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from klamm_spark.events.event import AUTHENTICATION, CONNECTION, REQUEST
from klamm_spark.lake.layout import Lake
from klamm_spark.settings.spark import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Executors may not have klamm: functions are sent to them as code, not by name.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call, unused-ignore]

MINUTE: Final = "1 minute"
READ_TIME: Final = "read_time"
_REMEMBERED_FAILURES: Final = 1000
_REMEMBERED_MS: Final = 3_600_000
"""How long after its last failure an address is remembered, beside the window."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table: its name, what a row is, and the query over the events."""

    name: str
    doc: str
    build: Callable[[DataFrame, SparkSettings], DataFrame]


def requests() -> Column:
    """How many requests a row of the lake represents."""
    return F.coalesce("repeat_count", F.lit(1))


def _count_if(condition: Column) -> Column:
    return F.sum(F.when(condition, requests()).otherwise(0))


def traffic_per_minute(events: DataFrame, settings: SparkSettings) -> DataFrame:
    """Rates, bytes, errors and throttle time by listener, principal, client, its address and API."""
    return (
        _read_now(events.where(F.col("kind") == REQUEST))
        .groupBy(_minute(), READ_TIME, "listener", "principal", "client_id", "client_address", "api_name")
        .agg(
            F.sum(requests()).alias("requests"),
            _count_if(F.col("error_code") != 0).alias("errors"),
            _count_if(F.col("outcome") == "denied").alias("denied"),
            _count_if(F.col("outcome") == "throttled").alias("throttled"),
            F.sum("request_bytes").alias("request_bytes"),
            F.sum("response_bytes").alias("response_bytes"),
            F.sum(F.col("throttle_time_ms") * requests()).alias("throttle_time_ms"),
            F.max(F.coalesce("total_time_max_ms", "total_time_ms")).alias("total_time_max_ms"),
        )
        .drop(READ_TIME)
    )


def denials(events: DataFrame, settings: SparkSettings) -> DataFrame:
    """One row per resource that was denied, or per request if it names none."""
    refused = F.filter("resources", lambda resource: ~F.coalesce(resource.granted, F.lit(True)))
    return (
        events.where((F.col("kind") == REQUEST) & (F.col("outcome") == "denied"))
        .withColumn("resource", F.explode_outer(refused))
        .select(
            "time",
            "event_id",
            "listener",
            "principal",
            "client_id",
            "client_address",
            "api_name",
            "error_name",
            F.col("resource.type").alias("resource_type"),
            F.col("resource.name").alias("resource_name"),
            F.col("resource.operation").alias("operation"),
        )
    )


def refused_per_minute(events: DataFrame, settings: SparkSettings) -> DataFrame:
    """Refused connections by listener, address and reason."""
    return (
        _read_now(events.where((F.col("kind") == CONNECTION) & (F.col("action") == "refused")))
        .groupBy(_minute(), READ_TIME, "listener", "client_address", "reason")
        .agg(F.count(F.lit(1)).alias("connections"))
        .drop(READ_TIME)
    )


def failures_per_minute(events: DataFrame, settings: SparkSettings) -> DataFrame:
    """Failed authentications by address, listener and mechanism."""
    return (
        _read_now(events.where(_failed()))
        .groupBy(_minute(), READ_TIME, "client_address", "listener", "sasl_mechanism")
        .agg(F.count(F.lit(1)).alias("failures"))
        .drop(READ_TIME)
    )


def success_after_failures(events: DataFrame, settings: SparkSettings) -> DataFrame:
    """The first success of an address after `failures_threshold` or more failed authentications within the window."""
    logins = events.where(_failed() | ((F.col("kind") == AUTHENTICATION) & (F.col("action") == "success")))
    return (
        _read_now(logins)
        .select(
            READ_TIME,
            F.unix_millis(READ_TIME).alias("read_time_ms"),
            *_OF_SUCCESS,
            _failed().alias("failed"),
        )
        .groupBy("client_address")
        .transformWithState(
            LoginsOfAddress(settings.failures_threshold, settings.failures_window_s * 1_000_000),
            "time_us long, client_address string, listener string, principal string, event_id string, failures long",
            "append",
            "eventTime",
        )
        .withColumn("time", F.timestamp_micros("time_us"))
    )


_OF_SUCCESS: Final = ("time_us", "client_address", "listener", "principal", "event_id")
"""What a row of `success_after_failures` has of the login."""


class LoginsOfAddress(StatefulProcessor):
    """Follows the logins of one address; the state is the times of its latest failures, in microseconds.

    Gives one row per success after `threshold` failures or more within `window_us` before it.
    """

    def __init__(self, threshold: int, window_us: int) -> None:
        self._threshold = threshold
        self._window_us = window_us

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._failures = handle.getListState("failures", "time_us long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Follow the logins that a micro-batch has of the address."""
        failures = [time_us for (time_us,) in self._failures.get()]
        logins = sorted(rows, key=lambda row: row.time_us)
        found = []
        for login in logins:
            if login.failed:
                failures.append(login.time_us)
                continue
            since_us = login.time_us - self._window_us
            recent = sum(since_us <= failed_us <= login.time_us for failed_us in failures)
            if recent >= self._threshold:
                failures.clear()
                found.append(Row(**{name: login[name] for name in _OF_SUCCESS}, failures=recent))
        for timer_ms in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer_ms)
        if failures:
            self._failures.put([(failed_us,) for failed_us in sorted(failures)[-_REMEMBERED_FAILURES:]])
            # By the clock of this machine: what a server sends late meets the failures that it has sent before.
            read_time_ms = max(login.read_time_ms for login in logins)
            self._handle.registerTimer(read_time_ms + _REMEMBERED_MS + self._window_us // 1000)
        else:
            self._failures.clear()
        return iter(found)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Forget the failures of an address that has had none for long."""
        self._failures.clear()
        return iter(())

    def close(self) -> None:
        """There is nothing to close."""


def first_seen(events: DataFrame, settings: SparkSettings) -> DataFrame:
    """Every principal, address and client version, with one event of the first micro-batch that had it."""
    software = F.concat_ws(" ", "client_software_name", "client_software_version")
    subjects = F.array(
        *(
            F.struct(F.lit(what).alias("what"), value.alias("value"))
            for what, value in (
                ("principal", F.col("principal")),
                ("client_address", F.col("client_address")),
                ("client_software", F.when(F.col("client_software_name").isNotNull(), software)),
            )
        )
    )
    return (
        events.select("time", "event_id", "listener", F.explode(subjects).alias("subject"))
        .where("subject.value is not null")
        .select(
            F.col("subject.what").alias("what"), F.col("subject.value").alias("value"), "time", "event_id", "listener"
        )
        .dropDuplicates(["what", "value"])
    )


TABLES: Final = tuple(
    TableSpec(build.__name__, (build.__doc__ or "").strip(), build)
    for build in (
        traffic_per_minute,
        denials,
        refused_per_minute,
        failures_per_minute,
        success_after_failures,
        first_seen,
    )
)
"""All tables, by the names of their folders."""


def hot_clients(traffic: DataFrame, settings: SparkSettings) -> DataFrame:
    """Clients with `hot_client_requests_per_minute` or more in a minute."""
    return (
        traffic.groupBy("minute", "listener", "principal", "client_id", "client_address")
        .agg(F.sum("requests").alias("requests"), F.sum("request_bytes").alias("request_bytes"))
        .where(F.col("requests") >= settings.hot_client_requests_per_minute)
    )


def brute_force(failures: DataFrame, settings: SparkSettings) -> DataFrame:
    """Addresses with `failures_threshold` or more failed authentications in a window that slides by a minute."""
    return (
        failures.groupBy(F.window("minute", f"{settings.failures_window_s} seconds", MINUTE), "client_address")
        .agg(
            F.sum("failures").alias("failures"),
            F.collect_set("listener").alias("listeners"),
            F.collect_set("sasl_mechanism").alias("sasl_mechanisms"),
        )
        .where(F.col("failures") >= settings.failures_threshold)
        .select(
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            "client_address",
            "failures",
            "listeners",
            "sasl_mechanisms",
        )
    )


VIEWS: Final[dict[str, tuple[str, Callable[[DataFrame, SparkSettings], DataFrame]]]] = {
    "hot_clients": ("traffic_per_minute", hot_clients),
    "brute_force": ("failures_per_minute", brute_force),
}
"""What is computed from a table when it is read: the table, and the query."""


def read_view(spark: SparkSession, lake: Lake, settings: SparkSettings, name: str) -> DataFrame:
    """A view of `VIEWS`."""
    table, build = VIEWS[name]
    return build(lake.read(spark, lake.table(table)), settings)


def start_table(
    spark: SparkSession, lake: Lake, settings: SparkSettings, table: TableSpec, *, once: bool = False
) -> StreamingQuery:
    """Start the query that fills a table; with `once`, it ends when it has read all that is committed now."""
    lake.require_checkpoint(table.name)
    events = lake.stream(spark).where("date is not null")
    writer = (
        table.build(events, settings)
        .writeStream.queryName(table.name)
        .format(lake.sink)
        .outputMode("append")
        .option("checkpointLocation", str(lake.table_checkpoint(table.name)))
    )
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{settings.aggregates_interval_ms} milliseconds")
    return writer.start(str(lake.table(table.name)))


def _read_now(events: DataFrame) -> DataFrame:
    """Events with the time at which a micro-batch reads them, and a watermark on it: each batch closes its groups."""
    return events.withColumn(READ_TIME, F.current_timestamp()).withWatermark(READ_TIME, "0 seconds")


def _minute() -> Column:
    return F.date_trunc("minute", "time").alias("minute")


def _failed() -> Column:
    return (F.col("kind") == AUTHENTICATION) & F.col("action").isin("failure", "reauthentication_failure")
