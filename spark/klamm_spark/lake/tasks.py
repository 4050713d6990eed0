"""Tasks over many files, on the executors of Spark or on threads of this process. They need no JVM themselves."""

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
"""Each holds a segment, uncompressed."""


class Tasks:
    """`count` of them run at a time."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._spark = spark
        self.count = min(_MOST_THREADS, os.cpu_count() or 1) if spark is None else spark.sparkContext.defaultParallelism

    def run(self, function: Callable[[T], R], parts: Sequence[T]) -> list[R]:
        """Return the results of a function, which executors must be able to import, for each part.

        Raises what it raises.
        """
        if self._spark is not None:
            results: list[R] = self._spark.sparkContext.parallelize(parts, len(parts)).map(function).collect()
            return results
        with ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(function, parts))
