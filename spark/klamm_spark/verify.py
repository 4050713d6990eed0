"""`klamm audit verify`: which numbers of the sequences are in the spool, which in the lake, and what is missing where.

Sequence numbers have no gaps but those that `audit_gap` events tell, so that sets of them, kept as ranges, prove what
was lost: an event is identified by node, boot and number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from klamm_spark.event import AUDIT_GAP
from klamm_spark.lake import Lake, LakeError, orphan_files
from klamm_spark.ranges import Ranges
from klamm_spark.spark_settings import Pipeline
from klamm_spark.spool_reader import SEGMENT_GLOB, segments

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

EXIT_FOUND: Final = 1


class Life(NamedTuple):
    """One life of one server, whose events are numbered from 0."""

    node: str
    boot: str


@dataclass(slots=True)
class Finding:
    """What is wrong, or worth knowing, about one life.

    `not_shipped` are in sealed segments and not in the lake; `lost` are in neither, between the first and the last
    number of both, and no `audit_gap` tells of them; `told` are in neither and told of; `only_in_lake` are gone from
    the spool; `duplicates` are in the lake more than once.
    """

    not_shipped: Ranges = field(default_factory=Ranges)
    lost: Ranges = field(default_factory=Ranges)
    told: Ranges = field(default_factory=Ranges)
    only_in_lake: Ranges = field(default_factory=Ranges)
    duplicates: Ranges = field(default_factory=Ranges)

    @property
    def sound(self) -> bool:
        """Whether every event that was written is in the lake exactly once, or told to be missing."""
        return not (self.not_shipped or self.lost or self.duplicates)


def run(spark: SparkSession, pipeline: Pipeline, *, say: Callable[[str], None]) -> int:
    """Compare, and say every gap and orphan; 1 if events are missing or doubled. Raises LakeError."""
    if pipeline.spool is None:
        raise LakeError("which spool? give a file that has [audit] spool, or --spool DIR")
    lake = Lake(pipeline.settings.lake.resolve(), pipeline.settings.sink)
    lake.require_events()
    shipped = lake.read_events(spark)
    in_spool = _read_spool(spark, pipeline.spool)
    in_lake = sequence_ranges(shipped)
    findings = compare(in_spool, in_lake, told_gaps(shipped), doubled(shipped))
    for life in sorted(in_spool.keys() | in_lake.keys()):
        say(f"{life.node}/{life.boot}: spool {_size(in_spool, life)}, lake {_size(in_lake, life)}")
        for line in _lines(findings[life]):
            say(f"  {line}")
    orphans = orphan_files(lake.events) if lake.sink == "parquet" else []
    for path in orphans:
        say(f"orphan: {path} is not in the commit log, and read by nobody")
    bad_lines = lake.read_quarantine(spark).count()
    if bad_lines:
        say(f"quarantine: {bad_lines:,} lines that are no events")
    sound = all(finding.sound for finding in findings.values())
    say("every event of the spool is in the lake exactly once" if sound else "the lake does not hold what it must")
    return 0 if sound else EXIT_FOUND


def compare(
    spool: Mapping[Life, Ranges],
    lake: Mapping[Life, Ranges],
    told: Mapping[Life, Ranges],
    duplicates: Mapping[Life, Ranges],
) -> dict[Life, Finding]:
    """A finding for every life in the spool or the lake."""
    findings = {}
    for life in spool.keys() | lake.keys():
        written, shipped = spool.get(life, Ranges()), lake.get(life, Ranges())
        missing = (written | shipped).gaps()
        known = told.get(life, Ranges())
        findings[life] = Finding(
            not_shipped=written - shipped,
            lost=missing - known,
            told=missing & known,
            only_in_lake=shipped - written,
            duplicates=duplicates.get(life, Ranges()),
        )
    return findings


def sequence_ranges(events: DataFrame) -> dict[Life, Ranges]:
    """The numbers of each life, as ranges; Spark finds the ranges, so that what comes back is small."""
    in_order = Window.partitionBy("node", "boot").orderBy("seq")
    islands = (
        events.select("node", "boot", "seq")
        .distinct()
        .withColumn("island", F.col("seq") - F.row_number().over(in_order))
        .groupBy("node", "boot", "island")
        .agg(F.min("seq").alias("first"), F.max("seq").alias("last"))
    )
    return _collect(islands)


def told_gaps(events: DataFrame) -> dict[Life, Ranges]:
    """What `audit_gap` events say is missing."""
    told = events.where((F.col("kind") == AUDIT_GAP) & F.col("gap_first_seq").isNotNull())
    return _collect(
        told.select(
            "node",
            F.coalesce("gap_boot", "boot").alias("boot"),
            F.col("gap_first_seq").alias("first"),
            F.coalesce("gap_last_seq", "gap_first_seq").alias("last"),
        )
    )


def doubled(events: DataFrame) -> dict[Life, Ranges]:
    """Numbers that are there more than once."""
    counted = events.groupBy("node", "boot", "seq").count().where("count > 1")
    return _collect(counted.select("node", "boot", F.col("seq").alias("first"), F.col("seq").alias("last")))


def _read_spool(spark: SparkSession, spool: Path) -> dict[Life, Ranges]:
    if not spool.is_dir():
        raise LakeError(f"there is no spool at {spool}")
    if next(segments(spool), None) is None:
        return {}
    lines = (
        spark.read.format("text")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", SEGMENT_GLOB)
        .load(str(spool.resolve()))
    )
    # An event that cannot be read whole counts too: it is in the quarantine, and not in the lake as it should be.
    numbered = lines.select(F.from_json("value", "node string, boot string, seq long").alias("event")).select("event.*")
    return sequence_ranges(numbered.dropna())


def _collect(rows: DataFrame) -> dict[Life, Ranges]:
    found: dict[Life, list[tuple[int, int]]] = defaultdict(list)
    for row in rows.select("node", "boot", "first", "last").collect():
        found[Life(row["node"], row["boot"])].append((row["first"], row["last"]))
    return {life: Ranges(pairs) for life, pairs in found.items()}


def _size(where: Mapping[Life, Ranges], life: Life) -> str:
    ranges = where.get(life)
    return f"{ranges.count():,} events ({ranges})" if ranges else "nothing"


def _lines(finding: Finding) -> Iterator[str]:
    named = {
        "not shipped": finding.not_shipped,
        "lost, and no audit_gap tells why": finding.lost,
        "more than once in the lake": finding.duplicates,
        "told by audit_gap": finding.told,
        "gone from the spool": finding.only_in_lake,
    }
    yield from (f"{name}: {ranges}" for name, ranges in named.items() if ranges)
