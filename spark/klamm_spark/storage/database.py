"""Opens DuckDB. All parts of the audit use this function."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb


def connect(
    file: str = ":memory:", *, threads: int, options: Mapping[str, str] | None = None
) -> duckdb.DuckDBPyConnection:
    """Open a database that writes nothing to standard output. Raises duckdb.Error.

    In `python -c`, a REPL and a notebook, DuckDB draws a progress bar as soon as a query takes two seconds. The bar
    would stand among the lines that a command prints.
    """
    database = duckdb.connect(file, config={"threads": threads, **(options or {})})
    database.execute("SET enable_progress_bar = false")
    return database
