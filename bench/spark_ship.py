"""From spool to lake: events/s of `klamm audit ship`, and how long an event waits from its seal to its commit.

    python -m bench.spark_ship                         1 M and 4 M events, Parquet and Delta
    python -m bench.spark_ship --events 200000 --sinks parquet

Needs the extra `spark` and Java. Sample events of about 900 bytes, in segments of 50,000. A first
batch that warms the JVM up is not counted.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from klamm_spark.settings.spark import SINKS, SparkSettings
from klamm_spark.spark.session import open_session
from tests.audit_samples import sample_events, write_sample_spool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEGMENT_EVENTS = 50_000
LATENCY_SEGMENTS = 20
LATENCY_EVENTS = 1_000


class Throughput(NamedTuple):
    """One run over a spool that is there already."""

    sink: str
    events: int
    seconds: float
    batches: int
    lake_mib: float


def main() -> None:
    """Print a Markdown table per measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="*", default=[1_000_000, 4_000_000])
    parser.add_argument("--sinks", nargs="*", choices=SINKS, default=list(SINKS))
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--no-latency", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="klamm-spark-ship-"))
    settings = SparkSettings(lake=folder / "lake", sink=options.sinks[-1], master=options.master)
    spark = open_session(settings, "klamm bench")
    try:
        write_sample_spool(folder / "warm", sample_events(2_000))
        for sink in options.sinks:
            throughput(spark, folder, sink, folder / "warm", 2_000)
        print("| sink | events | s | events/s | batches | lake MiB |\n| --- | ---: | ---: | ---: | ---: | ---: |")
        for events in options.events:
            spool = folder / f"spool-{events}"
            write_sample_spool(spool, sample_events(events), events_per_segment=SEGMENT_EVENTS)
            for sink in options.sinks:
                run = throughput(spark, folder, sink, spool, events)
                rate = f"{run.events / run.seconds:,.0f}"
                print(f"| {sink} | {events:,} | {run.seconds:.1f} | {rate} | {run.batches} | {run.lake_mib:.0f} |")
            shutil.rmtree(spool)
        if not options.no_latency:
            print(f"\nFrom seal to commit, a segment of {LATENCY_EVENTS:,} events a second:")
            for sink in options.sinks:
                waits = sorted(latency(spark, folder, sink))
                print(f"- {sink}: median {statistics.median(waits):.2f} s, longest {waits[-1]:.2f} s")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def throughput(spark: SparkSession, folder: Path, sink: str, spool: Path, events: int) -> Throughput:
    """Ship a whole spool into a fresh lake."""
    from klamm_spark.lake.layout import Lake
    from klamm_spark.lake.ship import start

    root = folder / f"lake-{sink}-{events}"
    lake = Lake(root, sink)
    settings = SparkSettings(lake=root, sink=sink)
    began = time.monotonic()
    query = start(spark, spool, lake, settings, once=True)
    query.awaitTermination()
    seconds = time.monotonic() - began
    written = lake.read_events(spark).count()
    assert written == events, f"{written} of {events}"
    batches = sum(bool(progress.numInputRows) for progress in query.recentProgress)
    size = sum(path.stat().st_size for path in lake.events.rglob("*.parquet")) / (1 << 20)
    shutil.rmtree(root)
    return Throughput(sink, events, seconds, batches, size)


def latency(spark: SparkSession, folder: Path, sink: str) -> list[float]:
    """Seconds from each segment's seal until its batch is committed, with a new segment every second."""
    from klamm_spark.lake.layout import Lake
    from klamm_spark.lake.ship import start

    spool, root = folder / f"live-{sink}", folder / f"live-lake-{sink}"
    lake = Lake(root, sink)
    write_sample_spool(spool, sample_events(LATENCY_EVENTS))
    settings = SparkSettings(lake=root, sink=sink, trigger_interval_ms=0)
    query = start(spark, spool, lake, settings, once=False)
    try:
        query.processAllAvailable()
        waits = []
        for number in range(1, LATENCY_SEGMENTS + 1):
            write_sample_spool(spool, sample_events(LATENCY_EVENTS, first_seq=number * LATENCY_EVENTS))
            sealed = time.monotonic()
            query.processAllAvailable()
            waits.append(time.monotonic() - sealed)
            time.sleep(max(0.0, 1 - waits[-1]))
        return waits
    finally:
        query.stop()


if __name__ == "__main__":
    main()
