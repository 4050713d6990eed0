"""The entry for PySpark. It imports every top-level package `pyspark_…` and offers its `DefaultSource` as a format.

So `spark.read.format("klamm_audit")` needs no earlier call, if klamm is installed.
"""

from __future__ import annotations

import contextlib

# An error here would make every other format fail too.
with contextlib.suppress(ImportError):
    from klamm_spark.spark.data_source import AuditDataSource as DefaultSource

__all__ = ["DefaultSource"]
