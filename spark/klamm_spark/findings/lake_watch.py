"""`klamm audit detect --follow` over a lake: a stream of Spark says what was shipped, and detections run around it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JNetworkError
from pyspark.sql import functions as F

from klamm_spark.errors import LakeError
from klamm_spark.findings.detections import Rules
from klamm_spark.findings.log import FindingLog
from klamm_spark.findings.watch import Watch
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.ship import explain
from klamm_spark.queries.event_views import Period, SparkViews
from klamm_spark.spark.session import jvm_may_have_ended

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from klamm_spark.findings.outputs import Deliveries

CHECKPOINT_SUFFIX: Final = ".checkpoint"


class LakeWatch(Watch):
    """Follows a lake: runs the detections around each batch of events, and records findings that are new.

    A batch that a killed process has not committed comes again, and its findings are known then. Findings are recorded
    on a thread of Spark's and delivered by `step`. It has no `problems`: a query that cannot go on ends the command.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        log: FindingLog,
        deliveries: Deliveries,
        report: Callable[[dict[str, Any]], None],
        *,
        window_us: int,
        since_us: int = 0,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        rules: Rules | None = None,
    ) -> None:
        super().__init__(log, deliveries, report, window_us=window_us, wall_us=wall_us, rules=rules)
        self._spark = spark
        self._lake = lake
        self._since_us = since_us
        # The log, which a thread of Spark's and the caller's use.
        self._lock = threading.Lock()
        self._is_closed = False
        self.query: StreamingQuery

    def start(self, findings: Path, interval_ms: int) -> None:
        """Start the query; its checkpoint is beside the findings. Raises LakeError if nothing was shipped yet."""
        self._lake.require_events()
        checkpoint = findings.with_name(findings.name + CHECKPOINT_SUFFIX)
        events = self._lake.stream(self._spark).where(
            (F.col("date").isNotNull()) & (F.col("time_us") >= self._since_us)
        )
        self.query = (
            events.writeStream.queryName("detect")
            .foreachBatch(self._detect)
            .option("checkpointLocation", checkpoint.resolve().as_uri())
            .trigger(processingTime=f"{interval_ms} milliseconds")
            .start()
        )

    def _detect(self, batch: DataFrame, number: int) -> None:
        try:
            self._detect_around(batch)
        except Exception as error:
            # Without the traceback: in one of PySpark, Spark seeks an interruption by a regular expression that
            # overflows the stack, and then the query ends without an exception.
            raise LakeError(str(error)) from None

    def _detect_around(self, batch: DataFrame) -> None:
        first_us, last_us = batch.agg(F.min("time_us"), F.max("time_us")).collect()[0]
        if first_us is None:
            return
        # The stream's own session: the views' names are free in it.
        spark = batch.sparkSession
        period = Period.around(first_us, last_us, self._window_us, self._since_us)
        found = list(self._rules.findings(SparkViews(spark, self._lake.read_events(spark), period)))
        with self._lock:
            if self._is_closed:
                raise LakeError("the findings are closed; the batch comes again")
            self._record(found, self._wall_us())

    def step(self) -> None:
        """Deliver what was found. Raises OSError, and LakeError if the query has failed."""
        try:
            failure, is_active = self.query.exception(), self.query.isActive
        except (ConnectionError, Py4JNetworkError) as error:
            raise LakeError("Spark's JVM has ended; detect again, and it continues where it was") from error
        if failure is not None:
            raise LakeError(explain("the query detect", failure))
        if not is_active:
            raise LakeError("the query detect has ended; detect again, and it continues where it was")
        with self._lock:
            self._deliveries.run()

    def close(self) -> None:
        """Stop the query."""
        with jvm_may_have_ended(lambda line: None):
            # Spark would log an error for the batch that is interrupted.
            self._spark.sparkContext.setLogLevel("OFF")
            self.query.stop()
        with self._lock:
            self._is_closed = True
