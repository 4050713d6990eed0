"""The Spark schema of the audit event, and the parsing of lines of the spool into columns."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from klamm_spark.events.event import ACTIONS, FIELDS, LISTS, SCHEMA_VERSION, Field
from klamm_spark.spark.written_lines import written_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
}
_CORRUPT: Final = "_corrupt_record"


def _struct(fields: tuple[Field, ...]) -> StructType:
    return StructType([StructField(field.name, _type(field)) for field in fields])


def _type(field: Field) -> DataType:
    return ArrayType(_struct(LISTS[field.type])) if field.type in LISTS else _TYPES[field.type]


EVENT_SCHEMA: Final = _struct(FIELDS)
"""One event, with the names and types of `klamm_spark.events.event.FIELDS`; every field may be null."""

LAKE_SCHEMA: Final = StructType(
    [
        *EVENT_SCHEMA.fields,
        StructField("bad_line", StringType()),
        StructField("newer_line", StringType()),
        StructField("kept_line", StringType()),
        StructField("source_file", StringType()),
        StructField("shipped_time", TimestampType()),
        StructField("time", TimestampType()),
        StructField("date", DateType()),
        StructField("hour", IntegerType()),
    ]
)
"""One row of the lake: an event, or a bad line with its file; `time` is `time_us` as a timestamp.

`newer_line` is the whole line of an event that a later klamm has written, `kept_line` that of one whose columns do not
give it back, see `klamm_spark.spark.written_lines`.
"""


def parse_lines(lines: DataFrame, *, line: str = "value") -> DataFrame:
    """Replace the column `line` by the event's columns, `bad_line`, `newer_line` and `kept_line`.

    A line is not an event if it is not a JSON object, a field has the wrong type, or a required one is missing: then
    `bad_line` is the line, and all event columns are null. Of an event of a later klamm the known fields are columns,
    as no version removes or renames one, and `newer_line` is the line.
    """
    with_corrupt = StructType([*EVENT_SCHEMA.fields, StructField(_CORRUPT, StringType())])
    others = [name for name in lines.columns if name != line]
    parsed = F.from_json(line, with_corrupt, {"columnNameOfCorruptRecord": _CORRUPT}).alias("event")
    # A later version may have further kinds.
    newer = F.col("event.schema_version") > SCHEMA_VERSION
    good = reduce(
        lambda left, right: left & right,
        [
            F.col(f"event.{_CORRUPT}").isNull(),
            *(F.col(f"event.{field.name}").isNotNull() for field in FIELDS if field.required),
            F.col("event.kind").isin(*ACTIONS) | newer,
        ],
    )
    # Each further step would copy the row: what is no event is null from here on.
    events = lines.select(line, *others, parsed).select(line, *others, F.when(good, F.col("event")).alias("event"))
    bad = F.col("event").isNull()
    kept = ~bad & ~newer & ~F.col(line).eqNullSafe(written_line("event"))
    return events.select(
        *(F.col(f"event.{name}").alias(name) for name in EVENT_SCHEMA.names),
        F.when(bad, F.col(line)).alias("bad_line"),
        F.when(newer, F.col(line)).alias("newer_line"),
        F.when(kept, F.col(line)).alias("kept_line"),
        *others,
    )


def with_time(events: DataFrame) -> DataFrame:
    """`time`, and from it the lake's partitions `date` and `hour`, all UTC and null for a bad line."""
    time = F.timestamp_micros("time_us")
    return events.select("*", time.alias("time"), F.to_date(time).alias("date"), F.hour(time).alias("hour"))
