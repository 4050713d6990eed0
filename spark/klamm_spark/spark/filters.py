"""Filters of Spark that the format `klamm_audit` applies itself: segments that cannot match are not read at all."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from klamm_spark.spool.layout import NODE_END

_COMPARISONS: Final[dict[type, Callable[[pc.Expression, Any], pc.Expression]]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
_LOWER_BOUNDS: Final = (EqualTo, GreaterThan, GreaterThanOrEqual)


@dataclass(slots=True)
class SpoolFilters:
    """The filters that were taken over; all of them must be true."""

    columns: pa.Schema
    taken: list[Filter] = field(default_factory=list)

    def take(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take over what is possible; the others are returned."""
        for one in filters:
            try:
                self._expression(one)
            except (KeyError, TypeError, pa.ArrowException):
                yield one
            else:
                self.taken.append(one)

    def since_us(self) -> int:
        """Only events from then on can match."""
        bounds = (
            one for one in self.taken if isinstance(one, _LOWER_BOUNDS) and one.attribute in (("time_us",), ("time",))
        )
        times: list[int] = [self._scalar(one.attribute[0], one.value).cast(pa.int64()).as_py() for one in bounds]
        return max(times, default=0)

    def has_node(self, folder: str) -> bool:
        """Whether a folder of the spool may have events that match."""
        node = folder.partition(NODE_END)[0]
        for one in self.taken:
            if isinstance(one, EqualTo) and one.attribute == ("node",) and one.value != node:
                return False
            if isinstance(one, In) and one.attribute == ("node",) and node not in one.value:
                return False
        return True

    def apply(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows that match."""
        if not self.taken:
            yield batch
            return
        condition = reduce(lambda left, right: left & right, map(self._expression, self.taken))
        yield from pa.Table.from_batches([batch]).filter(condition).to_batches()

    def _expression(self, one: Filter) -> pc.Expression:
        """Raises KeyError, TypeError or ArrowException if the filter cannot be taken over."""
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        name = attribute[0] if len(attribute) == 1 else ""
        index = self.columns.get_field_index(name)
        if index < 0 or pa.types.is_nested(self.columns.field(index).type):
            raise KeyError(name)
        column = pc.field(name)
        if isinstance(one, IsNull):
            return column.is_null()
        if isinstance(one, IsNotNull):
            return column.is_valid()
        if isinstance(one, In):
            return column.isin(pa.array(list(one.value), self.columns.field(index).type))
        value: Any = getattr(one, "value", None)
        return _COMPARISONS[type(one)](column, self._scalar(name, value))

    def _scalar(self, name: str, value: Any) -> pa.Scalar:
        return pa.scalar(value, self.columns.field(name).type)
