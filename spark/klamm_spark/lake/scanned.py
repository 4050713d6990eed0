"""A task over one file of the lake's table: what its rows prove, and rows of it. It runs in one pass, without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from klamm_spark.errors import LakeError
from klamm_spark.events.event import AUDIT_GAP, REQUEST
from klamm_spark.lake.files import TableFile, open_file
from klamm_spark.lake.statistics import Checked
from klamm_spark.lake.written import FILE, TIME
from klamm_spark.spool.event_lines import EVENT, WHOLE_LINES, EventLines, row_of, with_columns
from klamm_spark.spool.layout import line_digest

CHANGED: Final = "changed"
"""In the place of the digest of a row whose own columns do not fit together."""
GAP_COLUMNS: Final = (
    *("event_id", "node", "boot", "seq", "kind", "action", "detail"),
    *("gap_boot", "gap_first_seq", "gap_last_seq"),
)
INTERRUPTED_COLUMNS: Final = ("node", "boot", "seq", "event_id", "api_name", "principal", "client_address", "resources")
_ROWS_AT_ONCE: Final = 1 << 16
_UNREADABLE: Final = (OSError, ValueError, TypeError, LookupError, ArithmeticError, pa.ArrowException, duckdb.Error)
"""Who can write to a lake can put anything into a file."""
_SEGMENT: Final = re.compile(r"([^/]+?)\.jsonl(\.\w+)?$")
_KEPT: Final = ("event_id", "node", "boot", "seq", "time_us", "kind")


class SegmentRows(NamedTuple):
    """The rows that a file has of a segment, and their `lines_sha256`."""

    rows: int
    sha256: str


class Scanned(NamedTuple):
    """The content of a file. `problems`: it cannot be read, or not by all readers alike, or its statistics are wrong.
    `seqs` are ranges of numbers, `doubled` those that it has more than once; `gaps` are `audit_gap` events,
    `interrupted` state changes without an outcome."""

    problems: Sequence[str] = ()
    segments: Mapping[str, SegmentRows] = {}
    seqs: Sequence[tuple[str, str, int, int]] = ()
    doubled: Sequence[tuple[str, str, int]] = ()
    gaps: Sequence[dict[str, Any]] = ()
    interrupted: Sequence[dict[str, Any]] = ()
    bad_lines: int = 0


class Query(NamedTuple):
    """A question to a file: a query over the table `rows`, see `_RowTable`."""

    file: TableFile
    sql: str


def scan(file: TableFile) -> Scanned:
    """Look at all rows of a file."""
    try:
        found = _scanned(_RowTable(file))
    except _UNREADABLE as error:
        found = Scanned([f"{file.path} cannot be read: {' '.join(str(error).split())}"])
    return found._replace(problems=[*(f"{file.path}: {line}" for line in file.problems), *found.problems])


def _scanned(rows: _RowTable) -> Scanned:
    segments = rows.query(
        "SELECT segment, count(*), sha256(string_agg(DISTINCT digest, '' ORDER BY digest)) FROM rows GROUP BY segment"
    )
    islands = (
        "SELECT node, boot, seq::HUGEINT - dense_rank() OVER (PARTITION BY node, boot ORDER BY seq) AS island, seq "
        "FROM rows WHERE seq IS NOT NULL AND node IS NOT NULL AND boot IS NOT NULL"
    )
    seqs = rows.query(f"SELECT node, boot, min(seq), max(seq) FROM ({islands}) GROUP BY node, boot, island")
    numbered = sum(last - first + 1 for *_, first, last in seqs)
    doubled = []
    if rows.query(f"SELECT count(*) FROM ({islands})")[0][0] > numbered:
        doubled = rows.query(f"SELECT node, boot, seq FROM ({islands}) GROUP BY ALL HAVING count(*) > 1")
    return Scanned(
        problems=rows.problems,
        segments={stem: SegmentRows(count, sha256) for stem, count, sha256 in segments},
        seqs=seqs,
        doubled=doubled,
        gaps=rows.gaps,
        interrupted=rows.interrupted,
        bad_lines=rows.query("SELECT count(*) FILTER (is_bad) FROM rows")[0][0],
    )


def answer(query: Query) -> list[tuple[Any, ...]]:
    """The answer of a file. Raises LakeError if it cannot be read."""
    try:
        return _RowTable(query.file).query(query.sql)
    except _UNREADABLE as error:
        raise LakeError(f"{query.file.path} cannot be read: {' '.join(str(error).split())}") from error


def ask(query: Query) -> list[tuple[Any, ...]]:
    """The answer of a file; none if it cannot be read: `scan` names it."""
    try:
        return answer(query)
    except LakeError:
        return []


class _RowTable:
    """The rows of a file in DuckDB: their `segment` and `digest`, `event_id`, `node`, `boot`, `seq`, `time_us`, `kind`,
    `shipped_us`, and `is_bad` for lines of the quarantine."""

    def __init__(self, file: TableFile) -> None:
        self.gaps: list[dict[str, Any]] = []
        self.interrupted: list[dict[str, Any]] = []
        self._lines = EventLines()
        self._hour_us = file.hour_us
        database = self._lines.database
        database.execute(
            "CREATE TABLE rows (segment VARCHAR, digest VARCHAR, event_id VARCHAR, node VARCHAR, boot VARCHAR, "
            "seq BIGINT, time_us BIGINT, kind VARCHAR, shipped_us BIGINT, is_bad BOOLEAN)"
        )
        with open_file(file) as parquet:
            names = parquet.schema_arrow.names
            checked = Checked(parquet)
            for batch in checked.batches(_ROWS_AT_ONCE):
                table = self._rows(with_columns(pa.Table.from_batches([batch]), FILE))
                database.register("batch", table)
                database.execute("INSERT INTO rows SELECT * FROM batch")
                database.unregister("batch")
        for committed in file.committed:
            checked.check_commit(committed)
        # Spark and DuckDB do not tell capital letters.
        alike = [f"readers may take its column {name} for another" for name in names if _is_alike(name)]
        self.problems = [f"{file.path}: {line}" for line in (*alike, *checked.problems)]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask the rows."""
        return self._lines.database.execute(sql).fetchall()

    def _rows(self, batch: pa.Table) -> pa.Table:
        kind = batch.column("kind")
        self.gaps += _events(batch, pc.equal(kind, AUDIT_GAP), GAP_COLUMNS)
        ended = pc.and_(pc.equal(kind, REQUEST), pc.equal(batch.column("action"), "interrupted"))
        self.interrupted += _events(batch, ended, INTERRUPTED_COLUMNS)
        is_bad = pc.is_valid(batch.column("bad_line"))
        columns = [
            _segments(batch.column("source_file")),
            self._digests(batch),
            *(batch.column(name) for name in _KEPT),
            batch.column("shipped_time").cast(TIME).cast(pa.int64()),
            is_bad,
        ]
        return pa.table(columns, names=["segment", "digest", *_KEPT, "shipped_us", "is_bad"])

    def _digests(self, batch: pa.Table) -> pa.ChunkedArray:
        """The digest of each row's line, or `CHANGED`."""
        whole = pc.coalesce(*(batch.column(name) for name in WHOLE_LINES))
        plain = pc.is_null(whole)
        digests = self._lines.digests_of(batch.select(EVENT.names).filter(plain))
        if len(digests) < len(batch):
            apart = pa.array([_digest_apart(row) for row in batch.filter(pc.invert(plain)).to_pylist()], pa.string())
            digests = pc.replace_with_mask(
                pc.replace_with_mask(pa.nulls(len(batch), pa.string()), plain.combine_chunks(), digests),
                pc.invert(plain).combine_chunks(),
                apart,
            )
        fits = self._is_in_time(batch)
        return pc.if_else(fits, pc.fill_null(digests, CHANGED), CHANGED)

    def _is_in_time(self, batch: pa.Table) -> pa.ChunkedArray:
        """Return for each row whether its time is what its event says, and of the hour of its folder."""
        time_us, time = batch.column("time_us"), batch.column("time").cast(TIME).cast(pa.int64())
        if self._hour_us is None:
            return pc.and_(pc.is_null(time_us), pc.is_null(time))
        hour = pc.and_(pc.greater_equal(time_us, self._hour_us), pc.less(time_us, self._hour_us + 3_600_000_000))
        return pc.fill_null(pc.and_(pc.equal(time_us, time), hour), False)


def _is_alike(name: str) -> bool:
    return name not in FILE.names and name.lower() in FILE.names


def _events(batch: pa.Table, wanted: pa.ChunkedArray, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Columns of the wanted rows, in their types; what has no node, boot or number is no event."""
    for name in ("node", "boot", "seq"):
        wanted = pc.and_(wanted, pc.is_valid(batch.column(name)))
    found = batch.filter(wanted).select(columns)
    events: list[dict[str, Any]] = found.cast(pa.schema([EVENT.field(name) for name in columns])).to_pylist()
    return events


def _segments(sources: pa.ChunkedArray) -> pa.ChunkedArray:
    """The segments of rows, by their files; there are few."""
    encoded = sources.combine_chunks().dictionary_encode()
    names = [(found[1] if (found := _SEGMENT.search(each or "")) else "") for each in encoded.dictionary.to_pylist()]
    return pc.fill_null(
        pa.DictionaryArray.from_arrays(encoded.indices, pa.array(names, pa.string())).cast(pa.string()), ""
    )


def _digest_apart(row: Mapping[str, Any]) -> str:
    """The digest of a row that has its line, or `CHANGED` if that gives other columns."""
    line = next(row[name] for name in WHOLE_LINES if row[name] is not None)
    given = {**dict.fromkeys((*EVENT.names, *WHOLE_LINES)), **row_of(line)}
    event = _comparable({name: row[name] for name in given})
    return line_digest(line.encode()) if event == _comparable(given) else CHANGED


def _comparable(value: Any) -> Any:
    """Return a value without nulls, and with a text for a double that is no number: it equals nothing."""
    if isinstance(value, dict):
        return {name: _comparable(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_comparable(each) for each in value]
    return repr(value) if isinstance(value, float) and isnan(value) else value
