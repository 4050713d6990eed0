"""Encodings of the lake's Parquet files.

A dictionary of a column pays if values repeat. If nearly every event has another value, e.g. its number, its time or
its duration, a dictionary of ten thousands of values costs time for nothing. Such columns are written as differences
(`DELTA_BINARY_PACKED`, `DELTA_BYTE_ARRAY`) or, with a fraction, plain.
"""

from __future__ import annotations

from typing import Final

VALUES_DIFFER: Final = (
    "event_id",
    "seq",
    "time_us",
    "time",
    "correlation_id",
    "request_bytes",
    "response_bytes",
    "local_time_ms",
    "send_time_ms",
    "total_time_ms",
    "total_time_max_ms",
)

PARQUET_CONF: Final = {
    # The second version of pages has the encodings of differences. A table keeps what it began with.
    "spark.databricks.delta.properties.defaults.parquet.format.version": "2.12.0",
    # Spark's default, INT96, has no smallest and largest value, by which a reader skips what is of another time.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    **{f"spark.hadoop.parquet.enable.dictionary#{name}": "false" for name in VALUES_DIFFER},
}
"""Settings of a Spark session."""
