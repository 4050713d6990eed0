"""From spool to lake: events/s of `klamm audit ship`, and the time from an event's seal to its segment's mark.

    python -m bench.spark_ship                         1 M and 4 M events
    python -m bench.spark_ship --events 200000

    python -m bench.spark_ship --master local[2]       by PySpark; needs the extra `spark` and Java

Sample events have about 900 bytes, in segments of 50,000. A first batch warms up the JVM and is not counted.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from klamm_spark.settings.spark import Pipeline, SparkSettings
from klamm_spark.spark.session import open_session
from tests.audit_samples import sample_events, write_sample_spool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEGMENT_EVENTS = 50_000
LATENCY_SEGMENTS = 20
LATENCY_EVENTS = 1_000


class Throughput(NamedTuple):
    """One run over a finished spool."""

    events: int
    seconds: float
    batches: int
    lake_mib: float


def main() -> None:
    """Print a Markdown table per measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="*", default=[1_000_000, 4_000_000])
    parser.add_argument("--master", default="none")
    parser.add_argument("--no-latency", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="klamm-spark-ship-"))
    settings = SparkSettings(lake=folder / "lake", master=options.master)
    spark = None if options.master == "none" else open_session(settings, "klamm bench")
    try:
        write_sample_spool(folder / "warm", sample_events(2_000))
        throughput(spark, folder, folder / "warm", 2_000)
        print("| events | s | events/s | batches | lake MiB |\n| ---: | ---: | ---: | ---: | ---: |")
        for events in options.events:
            spool = folder / f"spool-{events}"
            write_sample_spool(spool, sample_events(events), events_per_segment=SEGMENT_EVENTS)
            run = throughput(spark, folder, spool, events)
            rate = f"{run.events / run.seconds:,.0f}"
            print(f"| {events:,} | {run.seconds:.1f} | {rate} | {run.batches} | {run.lake_mib:.0f} |")
            shutil.rmtree(spool)
        if not options.no_latency:
            print(f"\nFrom seal to mark, a segment of {LATENCY_EVENTS:,} events a second:")
            waits = sorted(latency(spark, folder))
            print(f"median {statistics.median(waits):.2f} s, longest {waits[-1]:.2f} s")
    finally:
        if spark is not None:
            spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def throughput(spark: SparkSession | None, folder: Path, spool: Path, events: int) -> Throughput:
    """Ship a whole spool into a fresh lake."""
    from klamm_spark.lake import ship
    from klamm_spark.lake.layout import Lake

    root = folder / f"lake-{events}"
    lake, said = Lake(root), list[str]()
    began = time.monotonic()
    ship.run(spark, Pipeline(spool, SparkSettings(lake=root)), once=True, say=said.append)
    seconds = time.monotonic() - began
    written = lake.table().to_pyarrow_dataset().count_rows()
    assert written == events, f"{written} of {events}"
    batches = sum(line.startswith("batch ") for line in said)
    size = sum(path.stat().st_size for path in lake.events.rglob("*.parquet")) / (1 << 20)
    shutil.rmtree(root)
    return Throughput(events, seconds, batches, size)


def latency(spark: SparkSession | None, folder: Path) -> list[float]:
    """Return the seconds from each segment's seal until its mark as shipped, with a new segment every second."""
    from klamm_spark.lake import ship

    spool, stop = folder / "live", threading.Event()
    write_sample_spool(spool, sample_events(LATENCY_EVENTS))
    pipeline = Pipeline(spool, SparkSettings(lake=folder / "live-lake", trigger_interval_ms=0))
    shipping = threading.Thread(
        target=lambda: ship.run(spark, pipeline, once=False, say=lambda line: None, stop=stop), daemon=True
    )
    shipping.start()
    try:
        _wait_for_marks(spool, 1)
        waits = []
        for number in range(1, LATENCY_SEGMENTS + 1):
            write_sample_spool(spool, sample_events(LATENCY_EVENTS, first_seq=number * LATENCY_EVENTS))
            sealed = time.monotonic()
            _wait_for_marks(spool, number + 1)
            waits.append(time.monotonic() - sealed)
            time.sleep(max(0.0, 1 - waits[-1]))
        return waits
    finally:
        stop.set()
        shipping.join()


def _wait_for_marks(spool: Path, count: int) -> None:
    while len(list(spool.rglob("*.shipped"))) < count:
        time.sleep(0.02)


if __name__ == "__main__":
    main()
