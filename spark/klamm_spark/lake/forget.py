"""`klamm audit forget`: deletes old events from the lake, by age and kind, and keeps the proofs of all others.

The records of what is forgotten are written first: a `forget` that is killed is named by `verify`, and the next one
ends it. Events that report gaps stay: they have no client in them, and say why numbers are missing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as F

from klamm_spark.errors import LakeError
from klamm_spark.events.event import FORGETTABLE
from klamm_spark.lake.compact import require_one_writer
from klamm_spark.lake.forgotten import (
    Forgotten,
    Record,
    digests_sha256,
    keep_key,
    read_forgotten,
    write_records,
)
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.ranges import Ranges
from klamm_spark.lake.rows import CHANGED, reading_with_little_memory, row_digests
from klamm_spark.lake.seals import read_seals
from klamm_spark.spool.signatures import SealSigner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from klamm_spark.settings.spark import Pipeline
    from klamm_spark.spool.layout import Seal

_RECORDS_PER_FILE: Final = 64


def run(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    before_us: int,
    kinds: Sequence[str] = (),
    key: Path | None = None,
    alone: bool = False,
    say: Callable[[str], None],
) -> int:
    """Forget the events of these kinds, or of all, that are older than a time; the exit code.

    Without kinds, lines of the quarantine that came before it go too. Raises LakeError, KeyFileError.
    """
    lake = Lake.of(pipeline.settings, spark)
    lake.require_events()
    if not alone:
        require_one_writer(spark, lake)
    signer = None if key is None else SealSigner(key)
    old = _condition(before_us, kinds)
    rule = _Rule(lake.table_id(spark), before_us, ", ".join(kinds) or "all", time.time_ns() // 1000)
    by_segment = _old_rows(row_digests(lake, spark).withColumn("old", F.expr(old)))
    if by_segment.where("changed > 0").limit(1).count():
        raise LakeError("rows that would be forgotten were changed since they were shipped: see klamm audit verify")
    count = 0
    with reading_with_little_memory(spark):
        count = _record(lake, by_segment, signer, rule)
    if count:
        spark.sql(f"DELETE FROM delta.`{lake.events}` WHERE {old}")
    say(f"{lake.events}: {count:,} events were forgotten; klamm audit compact deletes their files when it is due")
    say(f"the records are of the lake {rule.lake}: klamm audit verify --lake-id {rule.lake} takes no others")
    return 0


def _condition(before_us: int, kinds: Sequence[str]) -> str:
    before = f"timestamp_micros({int(before_us)})"
    names = ", ".join(f"'{kind}'" for kind in kinds or FORGETTABLE)
    old = f"(time < {before} AND kind IN ({names}))"
    return old if kinds else f"({old} OR (bad_line IS NOT NULL AND shipped_time < {before}))"


def _old_rows(rows: DataFrame) -> DataFrame:
    """Segments with old rows: `digests` of these, unless all rows are old, their `seqs`, and how many they are."""
    is_old = F.coalesce("old", F.lit(False))
    grouped = rows.groupBy("segment").agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_if(is_old).alias("lines"),
        F.count_if(is_old & (F.col("digest") == CHANGED)).alias("changed"),
        F.collect_set(F.when(is_old, F.col("digest"))).alias("digests"),
        F.collect_set(F.when(is_old, F.col("seq"))).alias("seqs"),
    )
    return grouped.where("lines > 0")


class _Rule(NamedTuple):
    """The rule that all records of one run have."""

    lake: str
    before_us: int
    kinds: str
    now_us: int


def _record(lake: Lake, by_segment: DataFrame, signer: SealSigner | None, rule: _Rule) -> int:
    """Write the records; how many lines they are of."""
    if signer is not None:
        keep_key(lake, signer)
    seals, known = read_seals(lake).seals, read_forgotten(lake, rule.lake).segments
    count = 0
    records: list[tuple[Record, str]] = []
    for row in by_segment.toLocalIterator():
        count += row["lines"]
        seal = seals.get(row["segment"])
        if seal is None:
            # Nothing proved them, and nothing is missed.
            continue
        record, digests = _record_of(row, seal, known.get(row["segment"], Forgotten()), rule)
        records.append((record if signer is None else record.signed(signer), digests))
        if len(records) == _RECORDS_PER_FILE:
            write_records(lake, records)
            records = []
    if records:
        write_records(lake, records)
    return count


def _record_of(row: Any, seal: Seal, earlier: Forgotten, rule: _Rule) -> tuple[Record, str]:
    gone = set(row["digests"]) | (earlier.digests or set())
    whole = len(gone) == seal.events
    digests = "" if whole else "".join(sorted(row["digests"]))
    seqs = Ranges((seq, seq) for seq in row["seqs"])
    record = Record(
        segment=seal.segment,
        forgotten_time_us=rule.now_us,
        before_us=rule.before_us,
        kinds=rule.kinds,
        lines=row["lines"],
        seqs=str(Ranges([(seal.first_seq, seal.last_seq)]) if whole else seqs),
        whole=whole,
        digests_sha256=digests_sha256(digests),
        lake=rule.lake,
    )
    return record, digests
