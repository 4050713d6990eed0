"""For PySpark, which imports every top-level package `pyspark_…` and offers its `DefaultSource` as a format.

So `spark.read.format("klamm_audit")` needs no call before it, where klamm is installed.
"""

from __future__ import annotations

import contextlib

# A package that cannot be imported here would fail every other format too.
with contextlib.suppress(ImportError):
    from klamm_spark.spark.data_source import AuditDataSource as DefaultSource

__all__ = ["DefaultSource"]
