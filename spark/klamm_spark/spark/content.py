"""The content of a spool at a URI, read by Spark's executors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from klamm_spark.spool.chain import Digest, digest_of
from klamm_spark.spool.layout import SEAL_SUFFIX, Seal, parse_name
from klamm_spark.spool.reader import SEGMENT_GLOB
from klamm_spark.storage.filesystems import AnyPath, path_from_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkContent:
    """Reads the seals and segments of a folder with Spark, all at once: few requests to an object store, and no segment
    is sent to the driver."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._seals: dict[AnyPath, bytes] = {}
        self._digests: dict[AnyPath, Digest] = {}

    def seals(self, folder: AnyPath) -> Sequence[AnyPath]:
        rows = self._files(f"*{SEAL_SUFFIX}", folder).select("file", F.col("value").cast("binary").alias("data"))
        self._seals = {path_from_uri(row["file"], folder): bytes(row["data"]) for row in rows.collect()}
        return [path for path in self._seals if parse_name(path.name)]

    def seal(self, path: AnyPath) -> Seal:
        data = self._seals.get(path)
        if data is None:
            raise FileNotFoundError(str(path))
        return Seal.parse(data)

    def begin(self, folder: AnyPath, segments: Iterable[AnyPath]) -> None:
        self._digests = {}
        sha256 = F.sha2(F.col("value").cast("binary"), 256).alias("sha256")
        lines = (F.length("value") - F.length(F.replace("value", F.lit("\n")))).alias("lines")
        for row in self._files(SEGMENT_GLOB, folder).select("file", sha256, lines).collect():
            self._digests[path_from_uri(row["file"], folder)] = Digest(row["sha256"], row["lines"])

    def digest(self, segment: AnyPath) -> Digest | None:
        found = self._digests.get(segment)
        # Spark skips files that it cannot decompress.
        return digest_of(b"") if found is None and segment.exists() else found

    def _files(self, pattern: str, folder: AnyPath) -> DataFrame:
        return (
            self._spark.read.format("text")
            .options(
                wholetext=True,
                recursiveFileLookup=True,
                pathGlobFilter=pattern,
                ignoreCorruptFiles=True,
                ignoreMissingFiles=True,
            )
            .load(str(folder))
            .select("value", F.col("_metadata.file_path").alias("file"))
        )
