"""The layout of the lake.

```
LAKE/
    events/                      a Delta table: every event once; partitioned by date=…/hour=…
        _delta_log/              the commits. A file that none of them names does not belong to the table
        date=2026-01-01/hour=7/part-….parquet
        date=__HIVE_DEFAULT_PARTITION__/…    the quarantine: lines that are not events, in `bad_line`
    seals/….parquet              the ledger: the seals of all shipped segments, see `klamm_spark.lake.seals`
    keys/FOLDER/KEY_ID.pub       public keys of the servers, see `klamm_spark.lake.keys`
    forgotten/….parquet          what `klamm audit forget` has deleted, see `klamm_spark.lake.forgotten`
    .ship.lock                   locked by the driver that ships
```
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from klamm_spark.errors import LakeError
from klamm_spark.storage.filesystems import AnyPath, path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from klamm_spark.settings.spark import SparkSettings

FORMAT: Final = "delta"
PARTITIONS: Final = ("date", "hour")
COMMITS: Final = "_delta_log"
MIN_KEEP_HOURS: Final = 168
"""Younger files of the lake are never deleted: they may be about to be committed, or be read."""


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake below `root`."""

    root: AnyPath

    @staticmethod
    def of(settings: SparkSettings, spark: SparkSession | None) -> Lake:
        """The lake that the settings name. Without a session, a lake at a URI cannot be read."""
        return Lake(path_of(settings.lake, spark))

    @property
    def events(self) -> AnyPath:
        """The table of events."""
        return self.root / "events"

    @property
    def seals(self) -> AnyPath:
        """The table of seals."""
        return self.root / "seals"

    @property
    def forgotten(self) -> AnyPath:
        """The table of what was forgotten."""
        return self.root / "forgotten"

    def require_events(self) -> None:
        """Raises LakeError if nothing was shipped here."""
        if not self.has_events():
            raise LakeError(f"nothing was shipped to {self.root} yet: run klamm audit ship")

    def has_events(self) -> bool:
        """Return True if a batch has been committed."""
        return any((self.events / COMMITS).glob("[0-9]*"))

    def table_id(self, spark: SparkSession) -> str:
        """The id that Delta has given to the table of events at random, when it was made."""
        return str(spark.sql(f"DESCRIBE DETAIL delta.`{self.events}`").select("id").collect()[0]["id"])

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows of `events` with its quarantine; a lake of an earlier klamm has all columns of this one."""
        from pyspark.sql import functions as F

        from klamm_spark.spark.schema import LAKE_SCHEMA

        rows = spark.read.format(FORMAT).load(str(self.events))
        there = set(rows.columns)
        missing = [field for field in LAKE_SCHEMA if field.name not in there]
        return rows.select("*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in missing))

    def stream(self, spark: SparkSession) -> DataFrame:
        """A stream of the rows of `events` as they are committed."""
        # `klamm audit forget` deletes rows that were read.
        return spark.readStream.format(FORMAT).option("skipChangeCommits", "true").load(str(self.events))

    def read_events(self, spark: SparkSession) -> DataFrame:
        """The events, without the quarantine."""
        self.require_events()
        return self.read(spark).where("date is not null")

    def read_quarantine(self, spark: SparkSession) -> DataFrame:
        """The lines that are not events: `bad_line`, `source_file`, `shipped_time`."""
        self.require_events()
        return self.read(spark).where("date is null").select("bad_line", "source_file", "shipped_time")
