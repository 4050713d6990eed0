"""A Spark session that reads lakes, as users have it: Delta comes from `delta-spark` and its jar."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

# Spark already contains these jars.
_NOT_WITH_DELTA: Final = (
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.google.guava:*",
    "io.airlift:*",
    "io.unitycatalog:*",
    "org.apache.hadoop:hadoop-client-*",
    "org.apache.hadoop:hadoop-common",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.apache.spark:*",
    "org.locationtech.jts:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)


def delta_session(warehouse: Path) -> Any:
    """Start the session."""
    import importlib.metadata

    import pyspark

    from klamm_spark.settings.spark import SparkSettings
    from klamm_spark.spark.session import open_session

    minor = ".".join(pyspark.__version__.split(".")[:2])
    conf = {
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.jars.packages": f"io.delta:delta-spark_{minor}_2.13:{importlib.metadata.version('delta-spark')}",
        "spark.jars.excludes": ",".join(_NOT_WITH_DELTA),
    }
    return open_session(SparkSettings(master="local[2]", driver_memory="1g", conf=conf), "klamm tests")


def rows_of(spark: Any, lake: Any) -> Any:
    """Return all rows of a lake, as Spark and Delta read them."""
    return spark.read.format("delta").load(str(lake.events))


def events_of(spark: Any, lake: Any) -> Any:
    """Return the events of a lake, without the quarantine."""
    return rows_of(spark, lake).where("date is not null")


def table_of(lake: Any) -> Any:
    """Return all rows of a lake, without Spark."""
    return lake.table().to_pyarrow_dataset().to_table()
