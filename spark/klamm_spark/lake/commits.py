"""The statistics of files in the log of the table, as any reader may see them. `verify` compares them with the rows.

deltalake returns the statistics of the first 32 columns that it can parse. Other readers may use the rest, and the
columns of a checkpoint. So this module reads both.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import starmap, zip_longest
from typing import Any, Final, NamedTuple

from klamm_spark.errors import LakeError
from klamm_spark.lake.files import Committed, TableFile
from klamm_spark.lake.layout import COMMITS, PARTITIONS, Lake
from klamm_spark.lake.parquet import open_parquet, packed_batches_of
from klamm_spark.storage.filesystems import MOST_COMMIT_BYTES, read_file

_BY_COLUMN: Final = ("minValues", "maxValues", "nullCount")
_KNOWN: Final = frozenset((*_BY_COLUMN, "numRecords", "tightBounds"))
_EPOCH: Final = date(1970, 1, 1)
_COLUMNS: Final = (
    *("add.path", "add.stats", "add.stats_parsed", "add.partitionValues_parsed", "add.deletionVector.sizeInBytes"),
    *("protocol.minReaderVersion", "metaData.configuration", "metaData.partitionColumns"),
)
_HIDING: Final = " gives the table features or partitions that ship does not give it, and readers may see other rows"
_UNREADABLE: Final = "a value that Python has not"


class Statements(NamedTuple):
    """The files with all their statistics, and a sentence for each file with statistics that cannot be compared."""

    files: list[TableFile]
    problems: list[str]


def with_statements(lake: Lake, files: Sequence[TableFile]) -> Statements:
    """Add the statistics that checkpoints have in columns. Raises LakeError."""
    known = {file.path: file for file in files}
    columns = {field.name for field in lake.table().schema().fields}
    unread, wrong, hiding, odd = dict[str, set[str]](), set[str](), set[str](), list[str]()
    for add in _adds(lake, odd):
        path = str(lake.events / add["path"])
        file = known.get(path)
        if file is None:
            continue
        said = unread.setdefault(path, set())
        vector = add.get("deletionVector")
        # A checkpoint may have an object of nulls in the place of none.
        if vector is not None and (not isinstance(vector, dict) or any(each is not None for each in vector.values())):
            hiding.add(path)
        stats = add.get("stats")
        if isinstance(stats, str):
            said.update(_unread(stats, file.committed[0]))
        elif stats is not None:
            said.add("stats")
        parsed, partition = add.get("stats_parsed"), add.get("partitionValues_parsed")
        if parsed is not None:
            said.update(_unread_columns(parsed, columns))
            if isinstance(parsed, dict):
                known[path] = replace(file, committed=(*file.committed, _committed(parsed)))
        if partition is not None and _hour_us(partition) != file.hour_us:
            wrong.add(path)
    sentences = [
        f"{path}: its commit has statistics that klamm cannot read, and other readers may: {', '.join(sorted(names))}"
        for path, names in sorted(unread.items())
        if names
    ]
    sentences += [f"{path}: a checkpoint is wrong about date and hour, and a query may skip rows" for path in wrong]
    sentences += [
        f"{path}: its commit has a vector of deleted rows, and other readers skip these" for path in sorted(hiding)
    ]
    return Statements(list(known.values()), sentences + odd)


def _adds(lake: Lake, odd: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the added files in all existing commits and checkpoints, each with its path.

    `odd` gets a sentence for each commit with a line that other readers may parse in another way, and for each file
    that gives the table features by which readers see other rows. deltalake may overlook those: it believes the
    checksum of a version, which may say anything.
    """
    import pyarrow as pa

    try:
        for commit in (lake.events / COMMITS).glob("*.json"):
            try:
                lines = read_file(commit, MOST_COMMIT_BYTES).split(b"\n")
            except FileNotFoundError:
                # The commit was deleted meanwhile, because it is older than the table keeps commits.
                continue
            is_odd = is_hiding = False
            for action in (_parsed(line) for line in lines if line.strip()):
                is_odd |= not action
                is_hiding |= _hides(action.get("protocol"), action.get("metaData"))
                add = action.get("add")
                if isinstance(add, dict) and isinstance(add.get("path"), str):
                    yield {name: add.get(name) for name in ("path", "stats", "deletionVector")}
            if is_odd:
                odd.append(f"{commit}: a line is no object of JSON, or has a name twice")
            if is_hiding:
                odd.append(f"{commit}{_HIDING}")
        for checkpoint in (lake.events / COMMITS).glob("*.checkpoint*.parquet"):
            with open_parquet(pa.BufferReader(read_file(checkpoint))) as parquet:
                for batch in packed_batches_of(parquet, columns=list(_COLUMNS)):
                    found = filter(None, map(_values, batch.column("add")))
                    yield from (add for add in found if isinstance(add.get("path"), str))
                    names = [name for name in ("protocol", "metaData") if name in batch.schema.names]
                    said = {name: batch.column(name).drop_null().to_pylist() for name in names}
                    if any(starmap(_hides, zip_longest(said.get("protocol", ()), said.get("metaData", ())))):
                        odd.append(f"{checkpoint}{_HIDING}")
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException) as error:
        raise LakeError(f"the commits of {lake.events} cannot be read: {' '.join(str(error).split())}") from error


def _hides(protocol: Any, table: Any) -> bool:
    """Return True if these have features by which readers see other rows or columns. Raises ValueError, TypeError."""
    for each in (protocol, table):
        if not isinstance(each, dict | None):
            return True
    if table is not None and table.get("partitionColumns") != list(PARTITIONS):
        # Readers take the values of these columns from the commit, and not from the file.
        return True
    properties = dict((table or {}).get("configuration") or {})
    version: object = (protocol or {}).get("minReaderVersion", 1)
    mode: object = properties.get("delta.columnMapping.mode", "none")
    return version != 1 or mode != "none"


def _values(add: Any) -> dict[str, Any] | None:
    """Return the values of a checkpoint's row about a file, or None if the row is about something else."""
    if not add.is_valid:
        return None
    found = {}
    for name, value in add.items():
        try:
            found[name] = value.as_py()
        except (ValueError, ArithmeticError):
            # E.g. a date in a year that Python's dates do not have.
            found[name] = _UNREADABLE
    return found


def _committed(parsed: Mapping[str, Any]) -> Committed:
    # `_unread_columns` has already named values that are not objects.
    by_column = (values if isinstance(values := parsed.get(kind), dict) else {} for kind in _BY_COLUMN)
    return Committed(
        parsed.get("numRecords"),
        *({name: _in_utc(value) for name, value in values.items() if value is not None} for values in by_column),
    )


def _in_utc(value: Any) -> Any:
    # Spark may write times as INT96, which has no time zone and is in UTC.
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def _unread_columns(parsed: Any, columns: Collection[str]) -> Iterator[str]:
    """Yield the names of a checkpoint's columns that the table does not have."""
    if not isinstance(parsed, dict):
        yield "stats_parsed"
        return
    yield from parsed.keys() - _KNOWN
    for kind in _BY_COLUMN:
        values = parsed.get(kind) or {}
        if not isinstance(values, dict):
            yield kind
            continue
        yield from (f"{kind}.{name}" for name in values.keys() - columns)


def _hour_us(partition: Any) -> int | None:
    try:
        day, hour = partition.get("date"), partition.get("hour")
        return None if day is None and hour is None else ((day - _EPOCH).days * 24 + hour) * 3_600_000_000
    except (TypeError, AttributeError):
        return -1


def _parsed(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in a text. Return an empty one for other texts, and if a name occurs twice."""
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _unread(text: str, committed: Committed) -> Iterator[str]:
    """Yield the names of statistics in a text that `committed` lacks."""
    statistics = _parsed(text)
    if not statistics:
        yield "no object of JSON, or one that has a name twice"
    yield from statistics.keys() - _KNOWN
    for kind, read in zip(_BY_COLUMN, (committed.lowest, committed.highest, committed.nulls), strict=True):
        values = statistics.get(kind) or {}
        if not isinstance(values, dict):
            yield kind
            continue
        yield from (f"{kind}.{name}" for name, value in values.items() if value is not None and name not in read)
