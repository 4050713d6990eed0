"""`klamm audit iceberg`: appends sealed segments of a spool to an Apache Iceberg table, by pyiceberg, without a JVM.

A property of the table names the newest segment of each stream, and is committed with the rows. So each segment comes
once, even if the command is killed or two commands run at a time.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from klamm_spark.errors import LakeError
from klamm_spark.events.event import FIELDS
from klamm_spark.queries.event_views import duckdb_type
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spool.layout import Seal, folder_of, node_folders
from klamm_spark.spool.reader import local_spool, read_seal, read_segment, segments_of

COMMANDS: Final = ("iceberg",)
_NEWEST: Final = "klamm.newest."
_BATCH_BYTES: Final = 256 * 1024**2
"""The uncompressed bytes after which a batch ends. A whole batch is in memory."""
_EXIT_LEFT_OUT: Final = 1


def add_commands(commands: Any, spool: list[argparse.ArgumentParser]) -> None:
    """Add the subcommand. `spool` has the arguments for the place of the spool."""
    iceberg = commands.add_parser("iceberg", parents=spool, help="append sealed segments to an Iceberg table")
    iceberg.add_argument(
        "--catalog", metavar="NAME", required=True, help="a catalog of pyiceberg's configuration, ~/.pyiceberg.yaml"
    )
    iceberg.add_argument(
        "--table", metavar="NAMESPACE.NAME", default="klamm.events", help="the table; default: klamm.events"
    )


def run(options: argparse.Namespace, pipeline: Pipeline, say: Callable[[str], None]) -> int:
    """Append the segments that the table does not have, and return the exit code. Raises LakeError.

    The code is not 0 if a segment differs from its seal, or if a folder has the segments of another stream.
    """
    spool = local_spool(pipeline, options.command)
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import CommitFailedException
    except ImportError as error:
        raise LakeError(f"this command needs {error.name}: pip install 'klamm[iceberg]'") from error
    try:
        table = _Table(load_catalog(options.catalog), options.table)
        refused = 0
        for folder in map(Path, map(str, node_folders(spool))):
            for batch in _batches(folder, table.newest(folder.name)):
                if isinstance(batch, str):
                    say(batch)
                    refused += 1
                else:
                    say(f"{folder.name}: {table.append(folder.name, batch):,} events up to {batch[-1].name}")
    except CommitFailedException as error:
        raise LakeError(f"another command has written to {options.table}: run this one again ({error})") from error
    except Exception as error:
        # Each kind of catalog raises errors of its own library.
        raise LakeError(f"{options.table}: {' '.join(str(error).split()) or type(error).__name__}") from error
    return _EXIT_LEFT_OUT if refused else 0


def _batches(folder: Path, newest: str) -> Iterator[list[Path] | str]:
    """Yield the segments after `newest` in batches. If a fault ends this early, yield a sentence about the fault last.

    A copy of a stream's folder is such a fault, because its events would be in the table twice.
    """
    batch, size_bytes = list[Path](), 0
    for stem, path in segments_of(folder, live=False).items():
        if stem <= newest:
            continue
        seal = read_seal(path)
        if seal is not None and folder_of(seal) != folder.name:
            yield f"{folder} is left out: its segments are of {folder_of(seal)}"
            return
        problem = _problem(path, seal)
        if seal is None or problem:
            if batch:
                yield batch
            yield f"{folder.name} ends before {path}: {problem}"
            return
        batch.append(path)
        size_bytes += seal.size_bytes
        if size_bytes >= _BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def _problem(path: Path, seal: Seal | None) -> str:
    if seal is None:
        return "it has no seal"
    try:
        return "" if hashlib.sha256(read_segment(path)).hexdigest() == seal.sha256 else "it differs from its seal"
    except (OSError, ValueError) as error:
        return str(error)


def _do_not_repeat() -> None:
    from pyiceberg.exceptions import CommitFailedException

    raise CommitFailedException("the table has changed")


class _Table:
    """The table of events. It is created if it does not exist."""

    def __init__(self, catalog: Any, name: str) -> None:
        """Open the table, or create it. Raises ValueError or OSError."""
        from klamm_spark.storage.database import connect

        self._duckdb = connect(threads=2)
        self._duckdb.execute("SET TimeZone = 'UTC'")
        schema = self._rows([]).schema
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        self._table = catalog.create_table_if_not_exists(name, schema=schema)
        if not self._table.spec().fields:
            with self._table.update_spec() as spec:
                spec.add_identity("date")
        with self._table.update_schema() as columns:
            # This adds columns that the table lacks because an earlier klamm created it.
            columns.union_by_name(schema)

    def newest(self, folder: str) -> str:
        """Return the name of a stream's newest segment in the table; empty without one."""
        return str(self._table.properties.get(_NEWEST + folder, ""))

    def append(self, folder: str, segments: list[Path]) -> int:
        """Add segments of a stream: all, or none. Return the number of events that were added."""
        rows = self._rows([str(path) for path in segments])
        # pyiceberg would refresh the table after a conflict, and append events that another command has just appended.
        self._table.refresh = _do_not_repeat
        with self._table.transaction() as transaction:
            transaction.append(rows)
            transaction.set_properties({_NEWEST + folder: segments[-1].name.partition(".")[0]})
        return int(rows.num_rows)

    def _rows(self, files: list[str]) -> Any:
        from klamm_spark.spool.written_lines import MAX_TIME_US

        columns = ", ".join(f"{field.name}: '{duckdb_type(field)}'" for field in FIELDS)
        source = f"read_json($files, columns = {{{columns}}}, format = 'newline_delimited', ignore_errors = true)"
        if not files:
            nothing = ", ".join(f"NULL::{duckdb_type(field)} AS {field.name}" for field in FIELDS)
            source = f"(SELECT {nothing} WHERE false)"
        time = "make_timestamptz(time_us) AS time, make_timestamptz(time_us)::DATE AS date"
        names = ", ".join(field.name for field in FIELDS)
        # Times outside this range have no date.
        is_event = f"event_id IS NOT NULL AND time_us BETWEEN 0 AND {MAX_TIME_US - 1}"
        query = f"SELECT {names}, {time} FROM {source} WHERE {is_event} ORDER BY time_us"
        return self._duckdb.sql(query, params={"files": files} if files else None).to_arrow_table()
