"""SQL views of events, which reports and detections query: in DuckDB over a spool or a lake, or in Spark.

The views are the same in both:

- `events`: the fields of `klamm_spark.events.event`, and `requests`, the number of requests that a row stands for.
- `resources`: `event_id`, `position` and the fields of each resource except its attributes.
- `attributes`: `event_id`, `position` of the resource, and the fields of each attribute.
- `earlier`: like `events`, of the period before.

Queries use only SQL that both engines know: no arrays and no timestamps. Times are microseconds.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from klamm_spark.errors import LakeError
from klamm_spark.events.event import ATTRIBUTE_FIELDS, DUCKDB_TYPES, FIELDS, LISTS, RESOURCE_FIELDS, Field
from klamm_spark.spool.layout import node_folders, open_segments, sealed_segments
from klamm_spark.spool.reader import read_seal, require_spool
from klamm_spark.storage.filesystems import open_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from klamm_spark.lake.layout import Lake

MEMORY_LIMIT: Final = "2GB"
_MAX_LINE_BYTES: Final = 1 << 20
NO_LIMIT_US: Final = 1 << 62
_HOUR_US: Final = 3_600_000_000


class Result(NamedTuple):
    """The result of a query."""

    names: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Period:
    """A period from `start_us` to just before `end_us`. The period before it starts at `before_us`."""

    start_us: int = 0
    end_us: int = NO_LIMIT_US
    before_us: int = 0

    @staticmethod
    def since(start_us: int, now_us: int) -> Period:
        """Return the period from a moment until now. The period before it has the same length."""
        return Period(start_us, NO_LIMIT_US, max(0, 2 * start_us - now_us))

    @staticmethod
    def around(first_us: int, last_us: int, window_us: int, since_us: int) -> Period:
        """Return the period that reaches `window_us` before and after events of that time, but not before `since_us`.

        There is no period before it. It reaches into the time afterwards because events may come late, after newer
        ones.
        """
        start_us = max(first_us - window_us, since_us)
        return Period(start_us, last_us + window_us + 1, start_us)

    def touches(self, hour_us: int) -> bool:
        """Return True if the hour that starts at `hour_us` overlaps the period or the period before it."""
        return self.before_us - _HOUR_US < hour_us < self.end_us


class EventViews(Protocol):
    """An engine with the views."""

    bad_lines: int
    """The number of lines that are not events."""

    def query(self, sql: str) -> Result:
        """Run one query."""
        ...


class DuckDbViews:
    """The views over a spool on this machine or over a lake, in DuckDB.

    DuckDB stores the events in a compressed temporary file in `TMPDIR`, which is about as large as the spool. Without
    the file, DuckDB would have to write uncompressed events to the disk when the memory is full.
    """

    def __init__(self, source: Path | Lake | None, period: Period, memory_limit: str = MEMORY_LIMIT) -> None:
        """Read the spool or the lake; without one there are no events yet. DuckDB writes what needs more memory than
        `memory_limit` to the temporary folder. Raises LakeError if it does not exist, if
        DuckDB is not installed, or if a file cannot be read or written."""
        if importlib.util.find_spec("duckdb") is None:
            raise LakeError("a report needs DuckDB: pip install 'klamm[report]'")
        if isinstance(source, Path):
            require_spool(source)
        import duckdb

        from klamm_spark.storage.database import connect

        self._faults = duckdb.OperationalError, duckdb.FatalException
        self._folder = tempfile.TemporaryDirectory(prefix="klamm-audit-")
        # In memory if a spool is followed, because events that come and go would leave holes in a file.
        file = ":memory:" if source is None else f"{self._folder.name}/events.duckdb"
        options = {"memory_limit": memory_limit, "temp_directory": self._folder.name}
        self._database = connect(file, threads=2, options=options)
        self._before_us = period.before_us
        self.bad_lines = 0
        try:
            with self._reporting_faults():
                self._create_views(period)
            if isinstance(source, Path):
                self.add(_files(source, period.before_us))
            elif source is not None:
                self._add_lake(source, period)
        except BaseException:
            self.close()
            raise

    def _create_views(self, period: Period) -> None:
        # Spark has this function, so that queries can use the same name.
        self._database.execute("CREATE MACRO regexp_like(text, pattern) AS regexp_matches(text, pattern)")
        fields = ", ".join(f"{field.name} {duckdb_type(field)}" for field in FIELDS)
        self._database.execute(f"CREATE TABLE kept ({fields}, requests BIGINT AS (coalesce(repeat_count, 1)))")
        for name, (since_us, until_us) in _periods(period).items():
            condition = f"time_us >= {since_us} AND time_us < {until_us}"
            self._database.execute(f"CREATE VIEW {name} AS SELECT * FROM kept WHERE {condition}")
        inner = ", ".join(f"one.{field.name}" for field in _RESOURCE_COLUMNS)
        self._database.execute(
            f"CREATE VIEW resources AS SELECT event_id, position, {inner} FROM (SELECT event_id, "
            "unnest(resources) AS one, generate_subscripts(resources, 1) - 1 AS position FROM events)"
        )
        self._database.execute(
            f"CREATE VIEW attributes AS SELECT event_id, position, {_ATTRIBUTE_COLUMNS} FROM (SELECT "
            "event_id, position, unnest(one.attributes) AS two FROM (SELECT event_id, unnest(resources) AS one, "
            "generate_subscripts(resources, 1) - 1 AS position FROM events))"
        )

    def forget(self, before_us: int) -> None:
        """Remove the events before a time."""
        self._database.execute("DELETE FROM kept WHERE time_us < ?", [before_us])

    def add(self, files: Sequence[str]) -> None:
        """Add the events of some segments. An incomplete last line is left out.

        Raises LakeError if a file cannot be read or written.
        """
        if not files:
            return
        columns = ", ".join(f"{field.name}: '{duckdb_type(field)}'" for field in FIELDS)
        options = f"format = 'newline_delimited', maximum_object_size = {_MAX_LINE_BYTES}, ignore_errors = true"
        source = f"read_json(?, columns = {{{columns}}}, {options})"
        insert = f"INSERT INTO kept BY NAME SELECT * FROM {source} "
        import duckdb

        with self._reporting_faults():
            try:
                self._database.execute(f"{insert} WHERE time_us >= {self._before_us}", [files])
            except duckdb.InvalidInputException as error:
                raise LakeError(f"the spool cannot be read: {' '.join(str(error).split())}") from error

    def _add_lake(self, lake: Lake, period: Period) -> None:
        from klamm_spark.lake.files import files_of, read_columns

        # Read each wanted file whole. Statistics in the file and in its commit may be forged, so do not skip rows by
        # them.
        files = files_of(lake)
        wanted = [file for file in files if file.hour_us is not None and period.touches(file.hour_us)]
        condition = f"time_us >= {period.before_us} AND time_us < {period.end_us}"
        insert = f"INSERT INTO kept BY NAME SELECT * FROM batch WHERE {condition}"
        import duckdb

        with self._reporting_faults():
            for file in wanted:
                for batch in read_columns([file], [field.name for field in FIELDS]):
                    self._database.register("batch", batch)
                    try:
                        self._database.execute(insert)
                    except (duckdb.BinderException, duckdb.ConversionException) as error:
                        # The file lacks a column, or a column has another type.
                        raise LakeError(f"{file.path} cannot be read: {' '.join(str(error).split())}") from error
                    self._database.unregister("batch")
        quarantine = [file for file in files if file.hour_us is None]
        self.bad_lines = sum(len(batch) for batch in read_columns(quarantine, ["bad_line"]))

    def query(self, sql: str) -> Result:
        """Run one query. Names may have Spark's quotes. Raises LakeError if a file cannot be read or written."""
        with self._reporting_faults():
            cursor = self._database.execute(sql.replace("`", '"'))
            names = tuple(column[0] for column in cursor.description or ())
            return Result(names, cursor.fetchall())

    @contextmanager
    def _reporting_faults(self) -> Iterator[None]:
        try:
            yield
        except self._faults as error:
            advice = "--since reads fewer events, and TMPDIR names another place for them"
            raise LakeError(f"{error} (DuckDB, with its files in {self._folder.name}: {advice})") from error

    def close(self) -> None:
        """Close the database, and remove its files."""
        self._database.close()
        self._folder.cleanup()


class SparkViews:
    """The views over a lake in Spark, for a notebook. They use only features that Spark Connect supports."""

    def __init__(self, spark: SparkSession, rows: DataFrame, period: Period) -> None:
        """Create the views. `rows` are the rows of the lake's table `events`."""
        from pyspark.sql import functions as F

        self._spark = spark
        self.bad_lines = rows.where("date is null").count()
        names = [*(field.name for field in FIELDS), "requests"]
        kept = rows.where("date is not null").withColumn("requests", F.coalesce("repeat_count", F.lit(1)))
        for name, (since_us, until_us) in _periods(period).items():
            found = kept.where((F.col("time_us") >= since_us) & (F.col("time_us") < until_us))
            if since_us:
                # The filter on the partition keeps Spark from opening files of other days.
                found = found.where(F.col("date") >= F.to_date(F.timestamp_micros(F.lit(since_us))))
            found.select(*names).createOrReplaceTempView(name)
        outer = "LATERAL VIEW posexplode(resources) AS position, one"
        inner = ", ".join(f"one.{field.name}" for field in _RESOURCE_COLUMNS)
        self._view("resources", f"SELECT event_id, position, {inner} FROM events {outer}")
        self._view(
            "attributes",
            f"SELECT event_id, position, {_ATTRIBUTE_COLUMNS} FROM (SELECT event_id, position, "
            f"one.attributes AS list FROM events {outer}) LATERAL VIEW explode(list) AS two",
        )

    def _view(self, name: str, sql: str) -> None:
        self._spark.sql(sql).createOrReplaceTempView(name)

    def query(self, sql: str) -> Result:
        """Run one query."""
        frame = self._spark.sql(sql)
        return Result(tuple(frame.columns), [tuple(row) for row in frame.collect()])


_RESOURCE_COLUMNS: Final = tuple(field for field in RESOURCE_FIELDS if field.type not in LISTS)

_ATTRIBUTE_COLUMNS: Final = ", ".join(f"two.{field.name}" for field in ATTRIBUTE_FIELDS)


def _periods(period: Period) -> dict[str, tuple[int, int]]:
    return {"events": (period.start_us, period.end_us), "earlier": (period.before_us, period.start_us)}


def _files(spool: Path, since_us: int) -> Sequence[str]:
    """Return the segments that may have events since that time."""
    found = []
    for folder in node_folders(spool):
        path = Path(str(folder))
        for segment in sealed_segments(path):
            seal = read_seal(segment) if since_us else None
            if seal is None or seal.sealed_time_us >= since_us:
                found.append(str(segment))
        found.extend(str(segment) for segment in open_segments(path))
    for name in found:
        # Open each file once without waiting: if a path is a pipe, DuckDB would wait for ever.
        os.close(open_local(Path(name)))
    return found


def duckdb_type(field: Field) -> str:
    """Return DuckDB's type for a field."""
    if field.type in LISTS:
        inner = ", ".join(f"{one.name} {duckdb_type(one)}" for one in LISTS[field.type])
        return f"STRUCT({inner})[]"
    return DUCKDB_TYPES[field.type]
