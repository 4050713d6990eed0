"""The segments of each append, in the commits of `ship`, so that a driver that was killed repeats none.

Delta commits an append with its list of segments, or nothing. The ledger gets them after it. So at most the last append
of `ship` may be unknown to the ledger, and its segments are still in the spool: none of them is marked yet.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from klamm_spark.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import SparkSession

    from klamm_spark.lake.layout import Lake
    from klamm_spark.lake.seals import Ledger, Sealed
    from klamm_spark.storage.filesystems import AnyPath

_SEGMENTS: Final = "klamm_audit_segments"
_NAMES_CHOSEN: Final = 1_000
_LOOKED_AT: Final = (10, 1_000, 1_000_000)
"""How many commits: those of `compact` and `forget` may be newer, and to read all takes long."""


class Append(NamedTuple):
    """A commit of `ship`; `is_newest` if no other commit came after it."""

    version: int
    segments: list[str]
    is_newest: bool


def said_in_commit(segments: Iterable[Sealed]) -> str:
    """Return the text that the commit of an append has about itself."""
    return json.dumps({_SEGMENTS: [each.seal.segment for each in segments]}, separators=(",", ":"))


def last_append(spark: SparkSession, lake: Lake) -> Append | None:
    """The last commit of `ship`; None if there is none. Raises LakeError if the commits cannot be read."""
    for limit in _LOOKED_AT:
        history = spark.sql(f"DESCRIBE HISTORY delta.`{lake.events}` LIMIT {limit}")
        rows = history.select("version", "userMetadata").orderBy(F.desc("version")).collect()
        for row in rows:
            try:
                segments = json.loads(row["userMetadata"] or "{}").get(_SEGMENTS)
            except (ValueError, AttributeError):
                continue
            if segments is not None:
                return Append(row["version"], segments, row is rows[0])
        if len(rows) < limit:
            break
    return None


def adopt(
    spark: SparkSession, lake: Lake, ledger: Ledger, waiting: Mapping[str, AnyPath], say: Callable[[str], None]
) -> None:
    """Add the segments of the last append to the ledger, if a driver was killed before. Raises LakeError.

    After a power cut its files may be cut off: then the append is undone, and its segments are shipped again.
    """
    if not lake.has_events():
        return
    try:
        append = last_append(spark, lake)
    except (Py4JJavaError, PySparkException) as error:
        raise LakeError(_unreadable(lake, error)) from error
    unknown = [] if append is None else [stem for stem in append.segments if stem not in ledger.known]
    if append is None or not unknown:
        return
    sealed = [each for stem in unknown if stem in waiting and (each := ledger.read(waiting[stem])) is not None]
    gone = set(unknown) - {each.seal.segment for each in sealed}
    for stem in sorted(gone):
        say(f"{stem} is in the lake, and its seal is not: it has left the spool, or is not what its seal says")
    try:
        rows = sum(_rows_of(spark, lake, [each.seal.segment for each in sealed]).values())
    except (Py4JJavaError, PySparkException) as error:
        if not append.is_newest:
            raise LakeError(_unreadable(lake, error)) from error
        rows = -1
    if not rows:
        # The append was undone, and its segments have not been shipped since.
        ledger.release(sealed)
        return
    if append.is_newest and not gone and rows != sum(each.seal.events for each in sealed):
        _undo(spark, lake, append, say)
        ledger.release(sealed)
        return
    ledger.add(sealed)


def adopt_older(
    spark: SparkSession, lake: Lake, ledger: Ledger, waiting: Mapping[str, AnyPath], say: Callable[[str], None]
) -> None:
    """Add segments to the ledger that the table has, where files of the ledger are gone.

    Only what is older than the newest known segment of its stream can be such a one, or comes late.
    """
    older = {stem: path for stem, path in waiting.items() if stem not in ledger.known and ledger.has_newer(path)}
    if not older or not lake.has_events():
        return
    there = _rows_of(spark, lake, older)
    sealed = [each for stem in sorted(there) if (each := ledger.read(older[stem])) is not None]
    if sealed:
        say(f"{len(sealed):,} segments are in the lake, and their seals were gone: they are there again")
        ledger.add(sealed)


def _rows_of(spark: SparkSession, lake: Lake, stems: Iterable[str]) -> dict[str, int]:
    """Return the number of rows that the table has for each of these segments, if any."""
    wanted = set(stems)
    name = F.regexp_extract("source_file", r"([^/]+)\.jsonl[^/]*$", 1).alias("name")
    rows = lake.read(spark).select(name)
    if len(wanted) <= _NAMES_CHOSEN:
        rows = rows.where(F.col("name").isin(sorted(wanted)))
    return {row["name"]: row["count"] for row in rows.groupBy("name").count().collect() if row["name"] in wanted}


def _undo(spark: SparkSession, lake: Lake, append: Append, say: Callable[[str], None]) -> None:
    if not append.version:
        raise LakeError(
            f"files of the first commit are cut off, as a power cut leaves them: delete {lake.events}, and klamm audit "
            "ship ships what the spool has"
        )
    spark.sql(f"RESTORE TABLE delta.`{lake.events}` TO VERSION AS OF {append.version - 1}")
    say(f"files of version {append.version} are cut off, as a power cut leaves them: its segments are shipped again")


def _unreadable(lake: Lake, error: Exception) -> str:
    said = str(error).strip().partition("\n")[0]
    return (
        f"{lake.events} cannot be read: {said}. If a power cut has torn its newest commit, delete that file of "
        "_delta_log with the files beside it that have its number: nothing of it is marked as shipped"
    )
