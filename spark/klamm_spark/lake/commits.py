"""The statistics of files as the log of the table has them: readers differ in what of these texts they take for one.

deltalake gives those of the first 32 columns whose values it can read. Other readers may use the rest.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import COMMITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from klamm_spark.lake.files import Committed, TableFile
    from klamm_spark.lake.layout import Lake

_BY_COLUMN: Final = ("minValues", "maxValues", "nullCount")
_OTHERS: Final = ("numRecords", "tightBounds")


def unread_statistics(lake: Lake, files: Sequence[TableFile]) -> Iterator[str]:
    """A sentence for each file of which the log has statistics that nothing has compared with its rows. Raises
    LakeError."""
    known, unread = {file.path: file for file in files}, dict[str, set[str]]()
    for path, text in _statistics(lake):
        file = known.get(str(lake.events / path))
        if file is not None:
            unread.setdefault(file.path, set()).update(_unread(text, file.committed))
    for path, names in sorted(unread.items()):
        if names:
            said = ", ".join(sorted(names))
            yield f"{path}: its commit has statistics that klamm cannot read, and other readers may: {said}"


def _statistics(lake: Lake) -> Iterator[tuple[str, str]]:
    """The paths of files with their statistics, from all commits and checkpoints that are there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for commit in (lake.events / COMMITS).glob("*.json"):
            for line in commit.read_bytes().splitlines():
                add = _parsed(line).get("add")
                if isinstance(add, dict) and isinstance(add.get("path"), str) and isinstance(add.get("stats"), str):
                    yield add["path"], add["stats"]
        for checkpoint in (lake.events / COMMITS).glob("*.checkpoint*.parquet"):
            with pq.ParquetFile(pa.BufferReader(checkpoint.read_bytes())) as parquet:
                for batch in parquet.iter_batches(columns=["add.path", "add.stats"]):
                    for add in batch.column("add").to_pylist():
                        if add is not None and add.get("stats") is not None:
                            yield add["path"], add["stats"]
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException) as error:
        raise LakeError(f"the commits of {lake.events} cannot be read: {' '.join(str(error).split())}") from error


def _parsed(text: str | bytes) -> dict[str, Any]:
    """Return an object; an empty one for what is none, or has a name twice."""
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
    """Return what a text says that is not in the statistics of its file."""
    statistics = _parsed(text)
    if not statistics:
        yield "no object of JSON, or one that has a name twice"
    yield from statistics.keys() - {*_BY_COLUMN, *_OTHERS}
    for kind, read in zip(_BY_COLUMN, (committed.lowest, committed.highest, committed.nulls), strict=True):
        values = statistics.get(kind) or {}
        if not isinstance(values, dict):
            yield kind
            continue
        yield from (f"{kind}.{name}" for name, value in values.items() if value is not None and name not in read)
