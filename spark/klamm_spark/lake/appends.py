"""Appends to the table of events. A commit names its segments, so that a driver that was killed repeats none.

Delta commits an append with its list of segments, or nothing, and the ledger gets them after it. So at most the last
append may be unknown to the ledger, or more where files of the ledger are gone; its segments are still in the spool.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import PARTITIONS
from klamm_spark.lake.seals import Shipped
from klamm_spark.lake.segment import read_sealed
from klamm_spark.spool.compression import LineReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from deltalake import DeltaTable

    from klamm_spark.lake.layout import Lake
    from klamm_spark.lake.seals import Ledger
    from klamm_spark.lake.written import DataFile
    from klamm_spark.storage.filesystems import AnyPath

_SEGMENTS: Final = "klamm_audit_segments"
_COMMITS_READ: Final = 100
"""Those of `compact` and `forget` may be newer than the last append."""


def append(lake: Lake, files: Iterable[DataFile], stems: Iterable[str]) -> None:
    """Commit files to the table. Raises LakeError."""
    from deltalake import CommitProperties
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction

    now_ms = time.time_ns() // 1_000_000
    actions: list[Any] = [
        AddAction(
            file.path,
            file.size_bytes,
            dict(zip(PARTITIONS, (file.date, file.hour), strict=True)),
            now_ms,
            True,
            file.stats,
        )
        for file in files
    ]
    said = CommitProperties({"userMetadata": json.dumps({_SEGMENTS: list(stems)}, separators=(",", ":"))})
    try:
        table = _with_all_columns(lake.table()) if lake.has_events() else _create(lake)
        table.create_write_transaction(actions, "append", table.schema(), list(PARTITIONS), commit_properties=said)
    except (DeltaError, OSError, ValueError) as error:
        raise LakeError(f"{lake.events} takes no files: {error}") from error


def _create(lake: Lake) -> DeltaTable:
    from deltalake import DeltaTable

    from klamm_spark.lake.written import TABLE

    return DeltaTable.create(str(lake.events), TABLE, partition_by=list(PARTITIONS))


def _with_all_columns(table: DeltaTable) -> DeltaTable:
    """A table of an earlier klamm gets the columns of this one."""
    from deltalake import Schema

    from klamm_spark.lake.written import TABLE

    there = {field.name for field in table.schema().fields}
    missing = [field for field in Schema.from_arrow(TABLE).fields if field.name not in there]
    if missing:
        table.alter.add_columns(missing)
    return table


def _named_segments(table: DeltaTable, limit: int | None) -> Iterator[list[str]]:
    """Yield the segments of each append, the last one first."""
    for commit in table.history(limit):
        try:
            segments = json.loads(commit.get("userMetadata") or "{}").get(_SEGMENTS)
        except (ValueError, AttributeError):
            continue
        if segments is not None:
            yield segments


def adopt(lake: Lake, ledger: Ledger, waiting: Mapping[str, AnyPath], say: Callable[[str], None]) -> None:
    """Add segments to the ledger that the table has: those of the last append, if a driver was killed before, and older
    ones if files of the ledger are gone. Raises LakeError."""
    if not lake.has_events():
        return
    table = lake.table()
    unknown = {stem for stem in next(_named_segments(table, _COMMITS_READ), []) if stem not in ledger.known}
    for stem in sorted(unknown - waiting.keys()):
        say(f"{stem} is in the lake, and its seal is not: it has left the spool")
    # Only what is older than the newest known segment of its stream can be in an older append, or comes late.
    older = {stem for stem, path in waiting.items() if stem not in ledger.known and ledger.has_newer(path)}
    if older:
        unknown |= older.intersection(*[{stem for stems in _named_segments(table, None) for stem in stems}])
    ledger.add(
        [each for stem in sorted(unknown & waiting.keys()) if (each := read_shipped(ledger, waiting[stem])) is not None]
    )


def read_shipped(ledger: Ledger, path: AnyPath) -> Shipped | None:
    """A segment of the spool that the table has, for the ledger; None if it is set aside."""
    segment = ledger.admit(path)
    if segment is None:
        return None
    try:
        return Shipped(segment, read_sealed(segment, LineReader())[1])
    except (OSError, ValueError) as error:
        ledger.refuse(segment, error)
        return None
