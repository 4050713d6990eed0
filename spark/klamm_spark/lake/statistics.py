"""The check of statistics against the rows. With statistics of a file's footer or a commit, a query can skip rows.

They are the smallest and largest values, the numbers of nulls and the numbers of rows, as PyArrow and deltalake read
them. Page indices and Bloom filters are not checked, because `ship` does not write them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from klamm_spark.lake.files import Committed
from klamm_spark.lake.parquet import packed_batches_of

_CUT_OFF: Final = timedelta(milliseconds=1)
"""The time by which a highest time in a commit may be too low, because a commit may have whole milliseconds."""


class Bounds(NamedTuple):
    """The smallest and the largest value of a column, and the number of its values that are not null.

    NaN is not counted, because readers do not agree on its order.
    """

    lowest: Any = None
    highest: Any = None
    values: int = 0

    def __or__(self, other: Bounds) -> Bounds:
        if self.lowest is None or other.lowest is None:
            return (other if self.lowest is None else self)._replace(values=self.values + other.values)
        lowest, highest = min(self.lowest, other.lowest), max(self.highest, other.highest)
        return Bounds(lowest, highest, self.values + other.values)

    def are_within(self, lowest: Any, highest: Any) -> bool:
        """Return True if all values are within two limits. None is no limit."""
        if self.lowest is None:
            return True
        return (lowest is None or lowest <= self.lowest) and (highest is None or self.highest <= highest)


class Checked:
    """A reader of a file's rows, which checks statistics meanwhile. `problems` name the statistics that do not fit the
    rows.
    """

    def __init__(self, parquet: pq.ParquetFile) -> None:
        self.problems: list[str] = []
        self._parquet = parquet
        self._names = [path for field in parquet.schema_arrow for path in _paths(field)]
        self._all = [Bounds() for _ in self._names]
        self._nulls: Counter[str] = Counter()
        self._rows = 0

    def batches(self, rows_at_once: int) -> Iterator[pa.RecordBatch]:
        """Read the file. Texts may be in dictionaries."""
        for number in range(self._parquet.num_row_groups):
            found = [Bounds() for _ in self._names]
            for batch in packed_batches_of(self._parquet, batch_size=rows_at_once, row_groups=[number]):
                self._rows += len(batch)
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    self._nulls[name] += column.null_count
                leaves = (leaf for column in batch.columns for leaf in _leaves(column))
                found = [one | _bounds(leaf) for one, leaf in zip(found, leaves, strict=True)]
                yield batch
            self._check_group(self._parquet.metadata.row_group(number), found)
            self._all = [one | other for one, other in zip(self._all, found, strict=True)]
        if self._parquet.metadata.num_rows != self._rows:
            self._add("footer", "the number of rows")

    def check_commit(self, commit: Committed) -> None:
        """Check the statistics of a commit against all rows. Call it after `batches` has ended."""
        if commit.rows not in (None, self._rows):
            self._add("commit", "the number of rows")
        for name, found in zip(self._names, self._all, strict=True):
            highest = commit.highest.get(name)
            if isinstance(highest, datetime):
                highest += _CUT_OFF
            if not found.are_within(commit.lowest.get(name), highest):
                self._add("commit", name)
        nulls = {name: self._rows - found.values for name, found in zip(self._names, self._all, strict=True)}
        # A list counts as one value. If the file lacks a column, all its values are null.
        nulls.update(self._nulls)
        for name, said in commit.nulls.items():
            if said != nulls.get(name, self._rows):
                self._add("commit", name)

    def _check_group(self, group: pq.RowGroupMetaData, all_found: Sequence[Bounds]) -> None:
        for index, found in enumerate(all_found):
            column = group.column(index)
            said = column.statistics
            if said is None:
                continue
            fits = not said.has_min_max or found.are_within(said.min, said.max)
            if not fits or (said.has_null_count and said.null_count != column.num_values - found.values):
                self._add("footer", self._names[index])

    def _add(self, place: str, what: str) -> None:
        line = f"its {place} is wrong about {what}, and a query may skip rows"
        if line not in self.problems:
            self.problems.append(line)


def _bounds(leaf: pa.Array) -> Bounds:
    values = leaf
    if pa.types.is_floating(leaf.type):
        values = leaf.filter(pc.invert(pc.is_nan(leaf)))
    elif pa.types.is_dictionary(leaf.type):
        # The dictionary may have values that no row has.
        values = leaf.dictionary.take(pc.unique(leaf.indices))
    found = pc.min_max(values).as_py()
    return Bounds(found["min"], found["max"], len(leaf) - leaf.null_count)


def _paths(field: pa.Field) -> Iterator[str]:
    """Yield the paths of the columns that a field has in a file, in their order."""
    inner = [field.type.value_field] if pa.types.is_list(field.type) else []
    if pa.types.is_struct(field.type):
        inner = list(field.type)
    for one in inner:
        yield from (f"{field.name}.{path}" for path in _paths(one))
    if not inner:
        yield field.name


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    """Yield the values of the columns that a field has in a file, in their order."""
    if pa.types.is_list(column.type):
        yield from _leaves(column.flatten())
    elif pa.types.is_struct(column.type):
        for inner in column.flatten():
            yield from _leaves(inner)
    else:
        yield column
