"""Ship, verify and report on the spools of 50 nodes on one machine, and compare with DuckDB and PySpark.

    python -m bench.audit_scale                                         2 M events
    python -m bench.audit_scale --events 100000000 --many 100000        the full size: 90 GB of disk, hours
    python -m bench.audit_scale --compression none
    python -m bench.audit_scale --events 100000000 --keep /mnt/fleet --only write           the full size in steps:
    python -m bench.audit_scale --events 100000000 --keep /mnt/fleet --only ship            each uses the files of
    python -m bench.audit_scale --events 100000000 --keep /mnt/fleet --only verify report   the steps before it

All segments are copies of eight samples, with other names of nodes and boots; each boot has one segment. `--many` is
the number of small segments for the last table, which shows if the time per batch stays the same. The steps `plain` and
`spark` (`ship` by PySpark) need the extra `spark` and Java. Plain PySpark runs in a process of its own, with Spark's
own settings and with as many cores and as much memory as `ship`. Processor time is the sum over all processes. With
`--keep` the spool and the lake stay, and an existing spool is used again: pass the same `--events` and
`--segment-events`. Steps of `--only`: write, codecs, duckdb, spool (`report` on the spool), plain, ship, spark, verify,
report, many. To run `ship` again, remove the folder `lake` first.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klamm_spark.events.event import SCHEMA_VERSION
from klamm_spark.settings.spark import Pipeline, SparkSettings
from klamm_spark.spark.session import open_session
from klamm_spark.spool.compression import Compressor, compress
from klamm_spark.spool.layout import (
    COMPRESSED_SUFFIXES,
    NO_CHAIN,
    SEAL_SUFFIX,
    SEALED_SUFFIX,
    Seal,
    SegmentName,
    chain_of,
    day_of,
    digests_of,
    lines_sha256,
)
from tests.audit_samples import line_of, sample_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES = 50
SAMPLES = 8
SAMPLE_NODE, SAMPLE_BOOT = "node-1", "019b8ff8d000c0ffee00"
MANY_BATCHES = 80
PIECE_BYTES = 1 << 20
SPARK_MASTER = "local[2]"
STEPS = ("write", "codecs", "duckdb", "spool", "plain", "ship", "spark", "verify", "report", "many")
"""The steps, in the order in which they run."""


def main() -> None:
    """Print a Markdown table per measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--segment-events", type=int, default=20_000)
    parser.add_argument("--compression", choices=list(COMPRESSED_SUFFIXES), default="zstd")
    parser.add_argument("--many", type=int, default=5_000, help="small segments for the time per batch; 0: none")
    parser.add_argument("--folder", type=Path, help="where all of it goes; default: a temporary folder")
    parser.add_argument("--keep", type=Path, help="a folder that stays, in place of a temporary one")
    parser.add_argument("--only", nargs="+", choices=STEPS, default=STEPS, help="these steps")
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="klamm-audit-scale-", dir=options.folder))
    try:
        measure(folder, options)
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def measure(folder: Path, options: argparse.Namespace) -> None:
    """Run all steps that `options` names."""
    settings, wanted = SparkSettings(lake=folder / "lake"), set(options.only)
    segments = max(1, options.events // options.segment_events)
    events = segments * options.segment_events
    spool = folder / "spool"
    if "write" in wanted and not spool.exists():
        write_fleet(spool, segments, options.segment_events, options.compression)
    size = sum(path.stat().st_size for path in spool.rglob("*.jsonl*"))
    print(f"{events:,} events of {NODES} nodes in {segments:,} segments ({options.compression})")
    print(f"{size / events:,.0f} bytes an event in the spool\n")
    if "codecs" in wanted:
        measure_codecs(options.segment_events)
    print("| | s | events/s | processor s |\n| --- | ---: | ---: | ---: |")
    if "duckdb" in wanted:
        row("DuckDB reads the spool", events, lambda: read_with_duckdb(spool))
    if "spool" in wanted:
        row("`klamm audit report SPOOL`", events, lambda: report_on_spool(spool))
    if "plain" in wanted:
        run_plain(folder, events)
    if wanted & {"ship", "spark", "verify", "report"}:
        measure_lake(folder, settings, events, wanted)
    if "many" in wanted and options.many:
        measure_batches(folder, settings, options.many)


def row(name: str, events: int, run: Callable[[], Any], spark: SparkSession | None = None) -> None:
    """Measure and print one step; its processor seconds include this process and the JVM."""
    began, spent = time.monotonic(), processor_seconds(spark)
    run()
    seconds, spent = time.monotonic() - began, processor_seconds(spark) - spent
    print(f"| {name} | {seconds:.1f} | {events / seconds:,.0f} | {spent:.1f} |", flush=True)


def processor_seconds(spark: SparkSession | None) -> float:
    """Return the processor time of this process, of its children that have ended, and of a session's JVM and Python."""
    own = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = sum(each.ru_utime + each.ru_stime for each in own)
    if spark is not None:
        seconds += sum(map(_spent, _family(spark.sparkContext._gateway.proc.pid)))
    return seconds


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [pid, *(one for path in children for child in path.read_text().split() for one in _family(int(child)))]


def _spent(pid: int) -> float:
    """Return the processor time of a process and of its children that have ended."""
    # The program's name stands in brackets and may contain blanks.
    numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, numbers[11:15])) / os.sysconf("SC_CLK_TCK")


def measure_codecs(segment_events: int) -> None:
    """Measure the size of an event and the CPU time per codec, compressed in pieces like those of the server."""
    data = b"".join(map(line_of, sample_events(segment_events, seed=0)))
    print("| compression | bytes an event | CPU, µs an event |\n| --- | ---: | ---: |")
    for codec in COMPRESSED_SUFFIXES:
        packed, spent_ns = len(data), 0
        if codec != "none":
            compressor, began_ns = Compressor(codec), time.thread_time_ns()
            for at in range(0, len(data), PIECE_BYTES):
                compressor.add(data[at : at + PIECE_BYTES])
            packed, spent_ns = len(compressor.finish()), time.thread_time_ns() - began_ns
        print(f"| {codec} | {packed / segment_events:,.0f} | {spent_ns / segment_events / 1000:.2f} |")
    print()


def write_fleet(spool: Path, segments: int, segment_events: int, compression: str) -> int:
    """Write the spools of `NODES` nodes. Return their bytes on disk."""
    samples = [
        b"".join(map(line_of, sample))
        for sample in (sample_events(segment_events, seed=seed) for seed in range(SAMPLES))
    ]
    chains, size = dict.fromkeys(range(NODES), NO_CHAIN), 0
    for number in range(segments):
        node = number % NODES
        name, boot = f"node-{node:02}", f"{number:010x}c0ffee0000"
        data = samples[number % SAMPLES].replace(SAMPLE_NODE.encode(), name.encode())
        data = data.replace(SAMPLE_BOOT.encode(), boot.encode())
        chains[node], written = write_segment(spool / name, boot, data, number // NODES, chains[node], compression)
        size += written
    return size


def write_segment(
    folder: Path, boot: str, data: bytes, index: int, previous_chain: str, compression: str
) -> tuple[str, int]:
    """Write a sealed segment and its seal. Return the segment's chain value and its bytes on disk."""
    lines = data.splitlines()
    stem, sha256 = SegmentName(boot, 0).stem, hashlib.sha256(data).hexdigest()
    sealed = lines_sha256(digests_of(data))
    chain = chain_of(previous_chain, sha256, sealed)
    seal = Seal(
        schema_version=SCHEMA_VERSION,
        node=folder.name,
        boot=boot,
        index=index,
        segment=stem,
        first_seq=0,
        last_seq=len(lines) - 1,
        events=len(lines),
        size_bytes=len(data),
        sha256=sha256,
        previous_chain=previous_chain,
        chain=chain,
        sealed_time_us=json.loads(lines[-1])["time_us"],
        final=True,
        lines_sha256=sealed,
    )
    folder /= day_of(json.loads(lines[0])["time_us"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}{SEAL_SUFFIX}").write_bytes(seal.to_json())
    packed = compress(data, compression)
    (folder / f"{stem}{SEALED_SUFFIX}{COMPRESSED_SUFFIXES[compression]}").write_bytes(packed)
    return chain, len(packed)


def read_with_duckdb(spool: Path) -> None:
    """Measure DuckDB at its best: it reads only the few fields that a query names."""
    import duckdb

    columns = {"kind": "VARCHAR", "outcome": "VARCHAR", "principal": "VARCHAR", "request_bytes": "BIGINT"}
    files = [str(path) for path in spool.rglob("*.jsonl*")]
    duckdb.execute(
        "SELECT kind, outcome, principal, count(*), sum(request_bytes) FROM "
        f"read_json(?, format = 'newline_delimited', columns = {columns}) GROUP BY ALL",
        [files],
    ).fetchall()


def report_on_spool(spool: Path) -> None:
    """Answer all questions and detections of the report from the spool."""
    from klamm_spark.queries.event_views import DuckDbViews, Period
    from klamm_spark.report.command import answer

    views = DuckDbViews(spool, Period())
    answer(views, str(spool))
    views.close()


def run_plain(folder: Path, events: int) -> None:
    """Measure plain PySpark in a process of its own: a JVM keeps the options of the first session in a process."""
    process = multiprocessing.get_context("spawn").Process(target=measure_plain, args=(folder, events))
    process.start()
    process.join()


def measure_plain(folder: Path, events: int) -> None:
    """Measure PySpark with Spark's settings as they are."""
    from pyspark.sql import SparkSession
    from pyspark.sql.pandas.types import from_arrow_schema

    from klamm_spark.spool.event_lines import EVENT

    ours = SparkSettings()
    builder = SparkSession.builder.master(SPARK_MASTER).config("spark.driver.memory", ours.driver_memory)
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.read.schema(from_arrow_schema(EVENT)).option("recursiveFileLookup", "true")
    plain = reader.option("pathGlobFilter", "*.jsonl*").json(str(folder / "spool"))
    row("PySpark: JSON to Parquet", events, lambda: plain.write.parquet(str(folder / "plain")), spark)
    spark.stop()


def measure_lake(folder: Path, settings: SparkSettings, events: int, wanted: set[str]) -> None:
    """Measure `ship` over the same files, then the commands that read the lake."""
    from klamm_spark.lake import ship, verify
    from klamm_spark.lake.layout import Lake
    from klamm_spark.report.command import build

    pipeline, lake = Pipeline(folder / "spool", settings), Lake.of(settings)
    if "ship" in wanted:
        row("`klamm audit ship --once --master none`", events, lambda: ship.run(None, pipeline, once=True, say=ignore))
    if "spark" in wanted:
        by_spark = Pipeline(folder / "spool", replace(settings, lake=folder / "lake-by-spark"))
        spark = open_session(replace(settings, master=SPARK_MASTER), "klamm bench")
        row("`klamm audit ship --once`", events, lambda: ship.run(spark, by_spark, once=True, say=ignore), spark)
        spark.stop()
    if "verify" in wanted:
        row("`klamm audit verify`", events, lambda: verify.run(None, pipeline, say=ignore))
    if "report" in wanted:
        row("`klamm audit report LAKE`", events, lambda: build(lake))
    size = sum(path.stat().st_size for path in Path(str(lake.events)).rglob("*.parquet"))
    print(f"\n{size / events:,.0f} bytes an event in the lake; at most {peak_mib():,} MiB of memory\n")


def peak_mib() -> int:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def ignore(line: str) -> None:
    """Discard what commands print: it is not measured."""


def measure_batches(folder: Path, settings: SparkSettings, many: int) -> None:
    """Measure the time of a batch over many small segments: it should not grow from the first batches to the last."""
    from klamm_spark.lake import ship

    write_fleet(folder / "many", many, 2, "none")
    in_batch = max(50, many // MANY_BATCHES)
    batch = replace(settings, lake=folder / "many-lake", max_files_per_trigger=in_batch)
    ends: list[float] = []

    def note(line: str) -> None:
        if line.startswith("batch "):
            ends.append(time.monotonic())

    ship.run(None, Pipeline(folder / "many", batch), once=True, say=note)
    took_ms = [(end - start) * 1000 for start, end in pairwise(ends)]
    quarter = max(1, len(took_ms) // 4)
    first, last = statistics.median(took_ms[:quarter]), statistics.median(took_ms[-quarter:])
    print(f"{many:,} segments, {in_batch} in a batch; milliseconds of a batch, median:\n")
    print(f"| first quarter | last quarter |\n| ---: | ---: |\n| {first:.0f} | {last:.0f} |")


if __name__ == "__main__":
    main()
