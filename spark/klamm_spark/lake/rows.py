"""Check that the rows of the lake match the seals: each row gives back its line, whose digest is in a seal.

Spark computes one digest per segment over all its rows, in one pass. Only segments whose digest differs from their seal
are checked row by row: the digests of their lines, which `ship` has kept beside the seal, identify the event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as F

from klamm_spark.lake.forgotten import ALL_LINES, Forgotten
from klamm_spark.lake.seals import line_digests
from klamm_spark.spark.schema import EVENT_SCHEMA
from klamm_spark.spark.written_lines import digest, numbers_as_written, written_line
from klamm_spark.spool.layout import Seal, lines_sha256, parse_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from klamm_spark.lake.layout import Lake

CHANGED: Final = "changed"
"""In the place of the digest of a row whose own columns do not fit together."""
_SEGMENTS_LOOKED_AT: Final = 16
_EVENTS_NAMED: Final = 20
_READING: Final = {
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
}
# Sets of digests are large: one after the other, not many at a time.
_LITTLE_MEMORY: Final = {"spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "2"}


class SegmentRows(NamedTuple):
    """The lake's rows of a segment: their number, and their `lines_sha256`."""

    rows: int
    sha256: str


def row_digests(lake: Lake, spark: SparkSession) -> DataFrame:
    """Every row of `events`, the quarantine too, as `segment` and `digest`, with a few of its columns."""
    whole = F.coalesce("newer_line", "kept_line")
    is_bad = F.col("bad_line").isNotNull()
    rows = lake.read(spark)
    columns = written_line()
    # To compare fields takes less than to write a second line. A bad line has none.
    source = F.when(is_bad, F.lit("{}")).otherwise(whole)
    kept = F.struct(*EVENT_SCHEMA.names).eqNullSafe(F.from_json(source, EVENT_SCHEMA))
    fits = (
        F.col("time").eqNullSafe(F.timestamp_micros("time_us"))
        & F.col("date").eqNullSafe(F.to_date("time"))
        & F.col("hour").eqNullSafe(F.hour("time"))
        & (source.isNull() | kept)
        & (source.isNotNull() | numbers_as_written())
        & ~(is_bad & whole.isNotNull())
    )
    return rows.select(
        F.coalesce(
            F.regexp_extract(F.substring_index("source_file", "/", -1), r"^([^/]+?)\.jsonl(\.\w+)?$", 1), F.lit("")
        ).alias("segment"),
        F.when(fits, digest(F.coalesce("bad_line", whole, columns))).otherwise(F.lit(CHANGED)).alias("digest"),
        "event_id",
        "seq",
        "kind",
        "time",
        "bad_line",
        "shipped_time",
    )


def reading_what_is_there(spark: SparkSession) -> AbstractContextManager[None]:
    """Within it, a file that is missing or damaged ends no query: its rows are missing, and are named."""
    return _with_settings(spark, _READING)


def reading_with_little_memory(spark: SparkSession) -> AbstractContextManager[None]:
    """Within it, Spark aggregates sets of digests one after the other."""
    return _with_settings(spark, _LITTLE_MEMORY)


@contextmanager
def _with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, earlier in before.items():
            if earlier is not None:
                spark.conf.set(key, earlier)


def check_rows(
    spark: SparkSession, lake: Lake, seals: Mapping[str, Seal], forgotten: Mapping[str, Forgotten]
) -> Iterator[str]:
    """A sentence for each row that no seal proves, and for each sealed line that the lake does not have."""
    with reading_with_little_memory(spark):
        rows = row_digests(lake, spark)
        found = _by_segment(rows, spark, forgotten)
        yield from _without_a_seal(found, seals, forgotten)
        differing = []
        for stem in sorted(seals):
            seal, rest = seals[stem], forgotten.get(stem)
            there = found.get(stem, SegmentRows(0, ""))
            gone = rest.lines if rest is not None else 0
            if rest is not None and rest.digests is ALL_LINES:
                if there.rows:
                    yield f"{stem}: {there.rows:,} rows are in the lake, and all of it is said to be forgotten"
            elif there.sha256 != seal.lines_sha256:
                differing.append(stem)
            elif there.rows + gone > seal.events and gone:
                yield f"{stem}: lines are in the lake that are said to be forgotten: run klamm audit forget again"
            elif there.rows + gone != seal.events:
                yield f"{stem}: its seal says {seal.events:,} lines, the lake has {there.rows + gone:,}"
        yield from _differing(lake, rows, differing, seals, forgotten)


def _by_segment(rows: DataFrame, spark: SparkSession, forgotten: Mapping[str, Forgotten]) -> dict[str, SegmentRows]:
    counted = rows.select("segment", "digest", F.lit(1).alias("row"))
    kept = [(stem, each) for stem, rest in forgotten.items() for each in rest.digests or ()]
    if kept:
        counted = counted.unionByName(
            spark.createDataFrame(kept, "segment string, digest string").withColumn("row", F.lit(0))
        )
    digests = F.array_join(F.sort_array(F.collect_set("digest")), "")
    grouped = counted.groupBy("segment").agg(
        F.sum("row").alias("rows"), F.sha2(digests.cast("binary"), 256).alias("sha256")
    )
    return {row["segment"]: SegmentRows(row["rows"], row["sha256"]) for row in grouped.collect()}


def _without_a_seal(
    found: Mapping[str, SegmentRows], seals: Mapping[str, Seal], forgotten: Mapping[str, Forgotten]
) -> Iterator[str]:
    for stem in sorted(found.keys() - seals.keys()):
        if found[stem].rows:
            name = stem if parse_name(stem) else f'"{stem}"'
            yield f"{name}: {found[stem].rows:,} rows, and the lake has no seal of it"
    for stem in sorted(forgotten.keys() - seals.keys()):
        yield f"{stem}: said to be forgotten, and the lake has no seal of it"


def _differing(
    lake: Lake,
    rows: DataFrame,
    stems: list[str],
    seals: Mapping[str, Seal],
    forgotten: Mapping[str, Forgotten],
) -> Iterator[str]:
    looked_at, others = stems[:_SEGMENTS_LOOKED_AT], stems[_SEGMENTS_LOOKED_AT:]
    if looked_at:
        digests = line_digests(lake, looked_at)
        there: dict[str, list[tuple[str, str | None]]] = {stem: [] for stem in looked_at}
        wanted = rows.where(F.col("segment").isin(looked_at)).select("segment", "digest", "event_id")
        for batch in wanted.toArrow().to_batches():
            for row in batch.to_pylist():
                there[row["segment"]].append((row["digest"], row["event_id"]))
        for stem in looked_at:
            rest = forgotten.get(stem)
            yield from _named(seals[stem], there[stem], digests.get(stem, []), rest.digests or () if rest else ())
    for stem in others:
        yield f"{stem}: its rows differ from its seal"


def _named(
    seal: Seal, there: list[tuple[str, str | None]], lists: Iterable[list[str]], forgotten: Iterable[str]
) -> Iterator[str]:
    """The events of a segment that were changed, inserted or dropped."""
    known = next((each for each in lists if lines_sha256(each) == seal.lines_sha256), None)
    lines: Mapping[str, Any] = _lines(seal, known or [])
    extra = Counter(name or "a line of the quarantine" for each, name in there if each not in lines)
    if known is None:
        yield (
            f"{seal.segment}: its rows differ from its seal, and so do the digests of its lines: which of the events "
            f"{seal.first_seq} to {seal.last_seq} of {seal.node}/{seal.boot} it is cannot be known"
        )
        extra = Counter(name or "a line of the quarantine" for each, name in there if each == CHANGED)
    present = {each for each, _ in there} | set(forgotten)
    missing = {lines[each] for each in lines.keys() - present}
    named = [
        *(f"{name} was {'changed' if name in missing or known is None else 'inserted'}" for name in sorted(extra)),
        *(f"{name} is missing" for name in sorted(missing - extra.keys())),
    ]
    yield from (f"{seal.segment}: {line}" for line in named[:_EVENTS_NAMED])
    if len(named) > _EVENTS_NAMED:
        yield f"{seal.segment}: and {len(named) - _EVENTS_NAMED:,} more of its {seal.events:,} events"
    if not named and known is not None:
        yield f"{seal.segment}: its rows differ from its seal"


def _lines(seal: Seal, digests: list[str]) -> dict[str, str]:
    """The names of lines by their digests: events, where the numbers have no gaps."""
    whole = seal.last_seq - seal.first_seq + 1 == len(digests)
    return {
        each: f"{seal.node}/{seal.boot}/{seal.first_seq + at}" if whole else f"line {at + 1}"
        for at, each in enumerate(digests)
    }
