"""Appends to the table of events. A commit names its segments, so that a driver that was killed repeats none.

Delta commits an append with its list of segments, or nothing, and the ledger gets them after it. So at most the last
append may be unknown to the ledger, or more where files of the ledger are gone; its segments are still in the spool.
A segment that the ledger could not take, e.g. because the spool's disk did not give it, is named by each later append
until it can: it is never appended again. A commit also says how far the ledger had come: so a lost end of it shows.
And it has the seals of its segments, by which `verify` proves their rows until the ledger has them.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import COMMITS, PARTITIONS
from klamm_spark.lake.seals import Shipped
from klamm_spark.lake.segment import read_sealed
from klamm_spark.spool.compression import LineReader
from klamm_spark.spool.layout import Seal
from klamm_spark.storage.filesystems import MOST_COMMIT_BYTES, read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from deltalake import DeltaTable

    from klamm_spark.lake.layout import Lake
    from klamm_spark.lake.seals import Ledger
    from klamm_spark.lake.written import DataFile
    from klamm_spark.storage.filesystems import AnyPath

_SEGMENTS: Final = "klamm_audit_segments"
_SEALS: Final = "klamm_audit_seals"
_NEWEST: Final = "klamm_audit_newest"
_KEPT_COMMITS: Final = {"delta.logRetentionDuration": "interval 100 days"}
"""The time for which commits are kept. After Delta's 30 days, `compact` would delete what a killed driver has appended,
unless another driver starts meanwhile. With more than 100 days, a busy lake would have millions of files to list.
"""


_ADD_BYTES: Final = 512
"""Of a file in a commit, besides its path and its statistics."""


class Named(NamedTuple):
    """The content of an append's commit: segments that the table has and the ledger may lack, with their seals, and the
    newest segment of each stream that the ledger had. In a commit of an earlier klamm, seals are empty, or it is None.
    """

    segments: Mapping[str, str]
    newest: Mapping[str, str] | None

    def to_json(self) -> str:
        """Return the text that the commit has."""
        said = {_SEGMENTS: list(self.segments), _SEALS: list(self.segments.values()), _NEWEST: self.newest}
        return json.dumps(said, separators=(",", ":"))

    @staticmethod
    def parse(text: object) -> Named | None:
        """Return what a commit says; None if it is no append of `ship`."""
        try:
            said = json.loads(text) if isinstance(text, str) else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(said, dict) or not _are_texts(said.get(_SEGMENTS)):
            return None
        segments, seals, newest = said[_SEGMENTS], said.get(_SEALS), said.get(_NEWEST)
        if not _are_texts(seals) or len(seals) != len(segments):
            seals = [""] * len(segments)
        is_newest = isinstance(newest, dict) and _are_texts(list(newest.values()))
        return Named(dict(zip(segments, seals, strict=True)), newest if is_newest else None)


def _are_texts(values: object) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def append(lake: Lake, files: Iterable[DataFile], named: Named) -> None:
    """Commit files to the table. Raises LakeError, before anything is committed if the commit could not be read."""
    from deltalake import CommitProperties
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction

    files, text = list(files), named.to_json()
    _check_size(lake, files, text)
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
    said = CommitProperties({"userMetadata": text})
    try:
        table = _with_all_columns(lake.table()) if lake.has_events() else _create(lake)
        table.create_write_transaction(actions, "append", table.schema(), list(PARTITIONS), commit_properties=said)
    except (DeltaError, OSError, ValueError) as error:
        raise LakeError(f"{lake.events} takes no files: {error}") from error


def _check_size(lake: Lake, files: Sequence[DataFile], text: str) -> None:
    """Raise LakeError if the commit would have more bytes than are read: no command could open the table then."""
    named_bytes = len(json.dumps(text))
    files_bytes = sum(_ADD_BYTES + len(file.path) + len(json.dumps(file.stats)) for file in files)
    if named_bytes + files_bytes > MOST_COMMIT_BYTES:
        raise LakeError(
            f"{lake.events} takes no files: its commit would have {named_bytes:,} bytes of seals and {files_bytes:,} "
            f"of {len(files):,} files, and at most {MOST_COMMIT_BYTES:,} are read: set max_files_per_trigger lower"
        )


def _create(lake: Lake) -> DeltaTable:
    from deltalake import DeltaTable

    from klamm_spark.lake.written import TABLE

    return DeltaTable.create(str(lake.events), TABLE, partition_by=list(PARTITIONS), configuration=_KEPT_COMMITS)


def _with_all_columns(table: DeltaTable) -> DeltaTable:
    """Add to a table of an earlier klamm the columns that it does not have, and return the table."""
    from deltalake import Schema

    from klamm_spark.lake.written import TABLE

    there = {field.name for field in table.schema().fields}
    missing = [field for field in Schema.from_arrow(TABLE).fields if field.name not in there]
    if missing:
        table.alter.add_columns(missing)
    return table


def _appends(lake: Lake) -> Iterator[Named]:
    """Yield what the commit of each append says, the last one first, with one commit in memory. Raises LakeError."""
    for version in range(lake.table().version(), -1, -1):
        path = lake.events / COMMITS / f"{version:020}.json"
        try:
            lines = read_file(path, MOST_COMMIT_BYTES).splitlines()
        except FileNotFoundError:
            # Removed, because it is older than the table keeps them.
            return
        except OSError as error:
            raise LakeError(f"{lake.events}: its commits cannot be read: {error}") from error
        for line in lines:
            said = _commit_info(line) if b'"commitInfo"' in line else None
            named = Named.parse(said.get("userMetadata")) if isinstance(said, dict) else None
            if named is not None:
                yield named


def _commit_info(line: bytes) -> object:
    try:
        action = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return action.get("commitInfo") if isinstance(action, dict) else None


def _last_append(lake: Lake) -> Named:
    """Return what the commit of the last append says. Raises LakeError."""
    return next(_appends(lake), Named({}, {}))


def seals_of_last(lake: Lake) -> dict[str, Seal]:
    """Return the seals that the last append has committed with its rows, by segment; the ledger may lack them."""
    # What cannot be read proves nothing.
    with contextlib.suppress(LakeError):
        return _parsed(_last_append(lake).segments)
    return {}


def _parsed(texts: Mapping[str, str]) -> dict[str, Seal]:
    seals = {}
    for stem, text in texts.items():
        with contextlib.suppress(ValueError):
            seal = Seal.parse(text)
            if seal.segment == stem:
                seals[stem] = seal
    return seals


def adopt(lake: Lake, ledger: Ledger, waiting: Mapping[str, AnyPath], say: Callable[[str], None]) -> dict[str, str]:
    """Add segments to the ledger that the table has: those of the last append, if a driver was killed before, and older
    ones if files of the ledger are gone. Return those that are still owed to it, with their seals: they must not be
    shipped again.

    Raises LakeError, OSError.
    """
    if not lake.has_events():
        return {}
    last = _last_append(lake)
    unknown = {stem: seal for stem, seal in last.segments.items() if stem not in ledger.known}
    for stem in sorted(unknown.keys() - waiting.keys()):
        say(f"{stem} is in the lake, and its seal is not: it has left the spool")
    # Else only what is older than the newest known segment of its stream can be in an older append, or comes late.
    is_cut = ledger.is_damaged if last.newest is None else not ledger.came_as_far_as(last.newest)
    older = {
        stem for stem, path in waiting.items() if stem not in ledger.known and (is_cut or ledger.has_newer(path))
    } - unknown.keys()
    for named in _appends(lake) if older else ():
        unknown |= {stem: seal for stem, seal in named.segments.items() if stem in older}
    return take(ledger, unknown, waiting)


def take(ledger: Ledger, owed: Mapping[str, str], waiting: Mapping[str, AnyPath]) -> dict[str, str]:
    """Add segments to the ledger that the table has, and return those that could not be read.

    Raises LakeError, OSError. What the spool has no more, not as it was, or without its seal, gets the seal of its
    commit, without the digests of its lines.
    """
    read = [read_shipped(ledger, waiting[stem]) for stem in sorted(owed.keys() & waiting.keys())]
    lost = {stem: seal for stem, seal in owed.items() if stem not in waiting or ledger.is_useless(stem)}
    ledger.add([each for each in (*read, *ledger.admit_seals(_parsed(lost).values())) if each is not None])
    return {stem: seal for stem, seal in owed.items() if stem not in ledger.known}


def read_shipped(ledger: Ledger, path: AnyPath) -> Shipped | None:
    """Return a segment of the spool that the table has, for the ledger; None if it is set aside."""
    segment = ledger.admit(path)
    if segment is None:
        return None
    try:
        return Shipped(segment, read_sealed(segment, LineReader())[1])
    except (OSError, ValueError) as error:
        ledger.refuse(segment, error)
        return None
