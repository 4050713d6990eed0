"""Appends to the table of events. Each commit names its segments, so that no segment is appended twice.

Delta commits an append together with the list of its segments, or does not commit it. `ship` adds the segments to the
ledger afterwards. If `ship` is killed between the two, the ledger lacks the segments of the last append, and more if
files of the ledger were lost; the spool still has these segments. `adopt` adds them when `ship` starts again. If the
ledger cannot take a segment, e.g. because the disk of the spool fails, each later commit names it again until the
ledger has it.

A commit has two more things. The newest segment of each stream in the ledger shows if the end of the ledger is lost.
The seals of the commit's segments prove their rows to `verify` until the ledger has the seals.
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
"""The time for which commits are kept.

After Delta's 30 days, `compact` would delete the files that a killed `ship` has appended, unless another one starts
before. With more than 100 days, a busy lake would have millions of files to list.
"""
_ADD_BYTES: Final = 512
"""An estimate of the bytes of a file in a commit, besides its path and its statistics."""


class CommitTooLargeError(LakeError):
    """A commit would have more bytes than are read."""


class Named(NamedTuple):
    """The content of an append's commit.

    `segments` maps segments to their seals. The table has these segments, but the ledger may lack them. `newest` is the
    newest segment of each stream that the ledger had. In a commit of an earlier klamm, seals are empty, or `newest` is
    None.
    """

    segments: Mapping[str, str]
    newest: Mapping[str, str] | None

    def to_json(self) -> str:
        """Return the text for the commit."""
        said = {_SEGMENTS: list(self.segments), _SEALS: list(self.segments.values()), _NEWEST: self.newest}
        return json.dumps(said, separators=(",", ":"))

    @staticmethod
    def parse(text: object) -> Named | None:
        """Return the content of a commit's text, or None if the commit is not an append of `ship`."""
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
    """Commit files to the table. Raises LakeError. A commit that would be too large is not written."""
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
        table = _with_all_columns(lake.table(to_change=True)) if lake.has_events() else _create(lake)
        table.create_write_transaction(actions, "append", table.schema(), list(PARTITIONS), commit_properties=said)
    except (DeltaError, OSError, ValueError) as error:
        raise LakeError(f"{lake.events} takes no files: {error}") from error


def _check_size(lake: Lake, files: Sequence[DataFile], text: str) -> None:
    """Raise CommitTooLargeError if no command could open the table then."""
    named_bytes = len(json.dumps(text))
    files_bytes = sum(_ADD_BYTES + len(file.path) + len(json.dumps(file.stats)) for file in files)
    if named_bytes + files_bytes > MOST_COMMIT_BYTES:
        raise CommitTooLargeError(
            f"{lake.events} takes no files: its commit would have {named_bytes:,} bytes of seals and {files_bytes:,} "
            f"of {len(files):,} files, and at most {MOST_COMMIT_BYTES:,} are read: set max_files_per_trigger lower"
        )


def _create(lake: Lake) -> DeltaTable:
    from deltalake import DeltaTable

    from klamm_spark.lake.written import TABLE

    return DeltaTable.create(str(lake.events), TABLE, partition_by=list(PARTITIONS), configuration=_KEPT_COMMITS)


def _with_all_columns(table: DeltaTable) -> DeltaTable:
    """Add the columns that a table of an earlier klamm lacks, and return the table."""
    from deltalake import Schema

    from klamm_spark.lake.written import TABLE

    there = {field.name for field in table.schema().fields}
    missing = [field for field in Schema.from_arrow(TABLE).fields if field.name not in there]
    if missing:
        table.alter.add_columns(missing)
    return table


def _appends(lake: Lake) -> Iterator[Named]:
    """Yield the content of each append's commit, the newest first, with one commit in memory. Raises LakeError."""
    for version in range(lake.table().version(), -1, -1):
        path = lake.events / COMMITS / f"{version:020}.json"
        try:
            lines = read_file(path, MOST_COMMIT_BYTES).splitlines()
        except FileNotFoundError:
            # Delta has deleted this commit and all earlier ones, because they are older than `_KEPT_COMMITS`.
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
    """Return the content of the last append's commit. Raises LakeError."""
    return next(_appends(lake), Named({}, {}))


def seals_of_last(lake: Lake) -> dict[str, Seal]:
    """Return the seals in the last append's commit, by segment. The ledger may lack them."""
    # A commit that cannot be read proves nothing, so its seals are left out.
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
    """Add to the ledger those segments of the table that it lacks. Return the segments that it still lacks, with their
    seals.

    It lacks segments of the last append if `ship` was killed, and older ones if files of the ledger were lost. The
    caller must not ship the returned segments again. Raises LakeError, OSError.
    """
    if not lake.has_events():
        return {}
    last = _last_append(lake)
    unknown = {stem: seal for stem, seal in last.segments.items() if stem not in ledger.known}
    for stem in sorted(unknown.keys() - waiting.keys()):
        say(f"{stem} is in the lake, and its seal is not: it has left the spool")
    # A waiting segment can be in an older append only if files of the ledger are lost, or if its stream has newer ones.
    is_cut = ledger.is_damaged if last.newest is None else not ledger.came_as_far_as(last.newest)
    older = {
        stem for stem, path in waiting.items() if stem not in ledger.known and (is_cut or ledger.has_newer(path))
    } - unknown.keys()
    for named in _appends(lake) if older else ():
        unknown |= {stem: seal for stem, seal in named.segments.items() if stem in older}
    return take(ledger, unknown, waiting)


def take(ledger: Ledger, owed: Mapping[str, str], waiting: Mapping[str, AnyPath]) -> dict[str, str]:
    """Add segments of the table to the ledger. Return those that could not be read.

    If the spool has lost or changed a segment, or has no seal of it, the ledger gets the seal from the commit, without
    the digests of the lines. Raises LakeError, OSError.
    """
    read = [read_shipped(ledger, waiting[stem]) for stem in sorted(owed.keys() & waiting.keys())]
    lost = {stem: seal for stem, seal in owed.items() if stem not in waiting or ledger.is_useless(stem)}
    ledger.add([each for each in (*read, *ledger.admit_seals(_parsed(lost).values())) if each is not None])
    return {stem: seal for stem, seal in owed.items() if stem not in ledger.known}


def read_shipped(ledger: Ledger, path: AnyPath) -> Shipped | None:
    """Return a segment of the spool whose rows the table has already; None if the ledger sets the segment aside."""
    segment = ledger.admit(path)
    if segment is None:
        return None
    try:
        return Shipped(segment, read_sealed(segment, LineReader())[1])
    except (OSError, ValueError) as error:
        ledger.refuse(segment, error)
        return None
