"""The formats of `klamm_spark.events.renderers` as Spark views: one JSON text per event.

from klamm_spark.lake.layout import Lake
from klamm_spark.lake.views import register_views

register_views(spark, Lake(Path("lake")))
spark.sql("select value from klamm_ocsf where kind = 'authentication'").write.text("ocsf")
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from klamm_spark.events.event import FIELD_NAMES
from klamm_spark.events.renderers import RENDERERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from klamm_spark.lake.layout import Lake


def register_views(spark: SparkSession, lake: Lake) -> None:
    """Views `klamm_kip673`, `klamm_cloudevents` and `klamm_ocsf` over a lake, for this session.

    Each has the columns `event_id`, `time`, `kind` and `value`, the event in JSON; events that a
    format does not have are left out.
    """
    events = lake.read_events(spark)
    for name in RENDERERS:
        rendered(events, name).createOrReplaceTempView(f"klamm_{name}")


def rendered(events: DataFrame, name: str) -> DataFrame:
    """`event_id`, `time`, `kind` and each event in the format `name` as `value`."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    render = RENDERERS[name]
    # A lambda: Spark warns about annotations that it does not know.
    to_json = F.udf(lambda row: _to_json(render, row), StringType())
    value = to_json(F.struct(*FIELD_NAMES)).alias("value")
    return events.select("event_id", "time", "kind", value).where("value is not null")


def event_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The event of a row of the lake: without the fields that are null."""
    return {name: _whole(value) for name, value in row.items() if value is not None}


def _whole(value: Any) -> Any:
    """A value, with the items of lists as `event_of` has the row."""
    return [event_of(item) for item in value] if isinstance(value, list) else value


def _to_json(render: Callable[[dict[str, Any]], dict[str, Any] | None], row: Any) -> str | None:
    found = render(event_of(row.asDict(recursive=True)))
    return None if found is None else json.dumps(found, sort_keys=True)
