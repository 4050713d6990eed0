"""Lines of the spool from the columns of the lake: what a row must have been, byte by byte.

The server writes the fields in one order, texts in ASCII and times with three digits. So the columns give a line back,
and its digest shows whether a row is still what a seal says. A line that they do not give back, e.g. one with an
escaped character, is kept whole in `kept_line`.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from klamm_spark.events.event import CONNECTION, FIELDS
from klamm_spark.events.line_order import CLOSED_AFTER, FIRST, REST
from klamm_spark.spool.layout import DIGEST_DIGITS

if TYPE_CHECKING:
    from pyspark.sql import Column

_DOUBLES: Final = frozenset(field.name for field in FIELDS if field.type == "double")
_THREE_DIGITS: Final = "decimal(24,3)"


def written_line(event: str = "") -> Column:
    """The line of an event whose fields are columns, or fields of the struct `event`."""
    prefix = f"{event}." if event else ""
    closes = F.col(f"{prefix}kind").eqNullSafe(CONNECTION)
    closed_after = _field(prefix, CLOSED_AFTER)
    # A field that is null is left out. So one struct has the order of both: two would double the code.
    return F.to_json(
        F.struct(
            *(_field(prefix, name) for name in FIRST),
            F.when(closes, closed_after).alias(CLOSED_AFTER),
            *(
                F.when(~closes, closed_after).alias(name) if name == CLOSED_AFTER else _field(prefix, name)
                for name in REST
            ),
        )
    )


def numbers_as_written() -> Column:
    """Return True for rows whose columns with a fraction can be those of a line: three digits, and not NaN."""
    columns = (F.col(name) for name in sorted(_DOUBLES))
    return reduce(and_, (each.eqNullSafe(each.try_cast(_THREE_DIGITS).cast("double")) for each in columns))


def _field(prefix: str, name: str) -> Column:
    value = F.col(f"{prefix}{name}")
    return (value.try_cast(_THREE_DIGITS) if name in _DOUBLES else value).alias(name)


def digest(line: Column) -> Column:
    """Compute the digest of a line as `klamm_spark.spool.layout.line_digest` does."""
    return F.substring(F.sha2(line.cast("binary"), 256), 1, DIGEST_DIGITS)
