"""`Tasks`: runs a function for many files, on Spark's executors or on threads of this process, which need no JVM."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
_MOST_THREADS: Final = 8
"""Each thread holds an uncompressed segment in memory."""


class Tasks:
    """A way to run tasks, `count` of them at a time."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._spark = spark
        self.count = min(_MOST_THREADS, os.cpu_count() or 1) if spark is None else spark.sparkContext.defaultParallelism

    def run(self, function: Callable[[T], R], parts: Sequence[T]) -> list[R]:
        """Return the results of a function for each part. Executors must be able to import the function.

        Raises the errors of the function.
        """
        if self._spark is not None:
            results: list[R] = self._spark.sparkContext.parallelize(parts, len(parts)).map(function).collect()
            return results
        with ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(function, parts))
