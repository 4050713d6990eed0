"""The task over one file of the lake's table: it reads the rows once, and returns facts about all rows, or some rows.

`Tasks` runs it on threads. It needs no Spark.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from klamm_spark.errors import LakeError
from klamm_spark.events.event import AUDIT_GAP, REQUEST
from klamm_spark.lake.files import TableFile, open_file
from klamm_spark.lake.ranges import Ranges
from klamm_spark.lake.statistics import Checked
from klamm_spark.lake.written import FILE, TIME
from klamm_spark.spool.event_lines import EVENT, WHOLE_LINES, row_of, with_columns
from klamm_spark.spool.written_lines import (
    DIGEST,
    content_of,
    digests_of_lines,
    plain,
    some_written_lines,
    written_lines,
)
from klamm_spark.storage.database import connect
from klamm_spark.storage.filesystems import path_of, size_of

CHANGED: Final = "changed"
"""The digest of a row whose columns contradict each other."""
GAP_COLUMNS: Final = (
    *("event_id", "node", "boot", "seq", "kind", "action", "detail"),
    *("gap_boot", "gap_first_seq", "gap_last_seq"),
)
INTERRUPTED_COLUMNS: Final = ("node", "boot", "seq", "event_id", "api_name", "principal", "client_address", "resources")
_ROWS_AT_ONCE: Final = 1 << 16
_MOST_KEPT_BYTES: Final = 1024**3
"""The maximum bytes that are kept in memory about one file. `ship` writes at most 4 million rows into a file."""
_ROW_BYTES: Final = 48
_RUN_BYTES: Final = 192
_SEGMENT_BYTES: Final = 2048
_EVENT_BYTES: Final = 1024
_UNREADABLE: Final = (OSError, ValueError, TypeError, LookupError, ArithmeticError, pa.ArrowException, duckdb.Error)
"""The errors of an invalid file. An attacker may have written anything into it."""
_SEGMENT: Final = re.compile(r"(.+?)\.jsonl(\.\w+)?")
_MOST_NAME_CHARS: Final = 255
"""The maximum length of a file's name on any file system."""
_MOST_BYTES: Final = {"source_file": 4096, "node": 1024, "boot": 1024}
"""The maximum bytes of a text in these columns. A repeated text costs nothing in the file, but it does in memory."""
_HEX: Final = f"coalesce(lower(hex(digest)), '{CHANGED}') AS digest"
_KEPT: Final = ("event_id", "node", "boot", "seq", "time_us", "kind")

_QUERIED: Final = pa.schema(
    [
        pa.field("segment", pa.string()),
        pa.field("digest", DIGEST),
        *map(EVENT.field, _KEPT),
        pa.field("shipped_us", pa.int64()),
        pa.field("is_bad", pa.bool_()),
    ]
)


class SegmentRows(NamedTuple):
    """The rows that a file has of a segment, and the SHA-256 of their lines, each with its end, as they stand there. It
    is empty if the columns of a row do not fit together."""

    rows: int
    sha256: str


class Scanned(NamedTuple):
    """The content of a file.

    `problems` are sentences about faults: the file is unreadable or ambiguous, or its statistics are wrong. `seqs` has
    the numbers of each node and boot, and `doubled` has the numbers that occur more than once. `gaps` are `audit_gap`
    events, and `interrupted` state changes without an outcome.
    """

    problems: Sequence[str] = ()
    segments: Mapping[str, SegmentRows] = {}
    seqs: Mapping[tuple[str, str], Ranges] = {}
    doubled: Mapping[tuple[str, str], Ranges] = {}
    gaps: Sequence[dict[str, Any]] = ()
    interrupted: Sequence[dict[str, Any]] = ()
    bad_lines: int = 0


class Query(NamedTuple):
    """A question to a file: a query over the table `rows`, see `_QUERIED`; of all rows, or of those of `segments`."""

    file: TableFile
    sql: str
    segments: Collection[str] | None = None


def scan(file: TableFile) -> Scanned:
    """Read all rows of a file. An unreadable file is a problem in the result."""
    try:
        found = _scanned(file)
    except _UNREADABLE as error:
        found = Scanned([f"{file.path} cannot be read: {' '.join(str(error).split())}"])
    return found._replace(problems=[*(f"{file.path}: {line}" for line in file.problems), *found.problems])


def _scanned(file: TableFile) -> Scanned:
    segments, pairs = defaultdict[str, _Segment](_Segment), defaultdict[tuple[str, str], list[tuple[int, int]]](list)
    problems: list[str] = []
    gaps: list[dict[str, Any]] = []
    interrupted: list[dict[str, Any]] = []
    bad_lines = kept_bytes = 0
    for batch in _batches(file, problems):
        _add_lines(segments, _segments(batch), _lines(batch, file.hour_us, "\n"))
        runs = list(_numbers(batch))
        for node, boot, first, last in runs:
            if (node, boot) not in pairs:
                kept_bytes += sys.getsizeof(node) + sys.getsizeof(boot)
            pairs[node, boot].append((first, last))
        kind = plain(batch.column("kind"))
        ended = pc.and_(pc.equal(kind, REQUEST), pc.equal(plain(batch.column("action")), "interrupted"))
        reports = _events(batch, pc.equal(kind, AUDIT_GAP), GAP_COLUMNS)
        changes = _events(batch, ended, INTERRUPTED_COLUMNS)
        kept_bytes += _ROW_BYTES * len(batch) + _RUN_BYTES * len(runs)
        kept_bytes += sum(each.nbytes + _EVENT_BYTES * len(each) for each in (reports, changes))
        _check_kept(kept_bytes + _SEGMENT_BYTES * len(segments))
        gaps += reports.to_pylist()
        interrupted += changes.to_pylist()
        bad_lines += len(batch) - batch.column("bad_line").null_count
    return Scanned(
        problems=problems,
        segments={stem: SegmentRows(each.rows, each.sha256()) for stem, each in segments.items()},
        seqs={boot: Ranges(each) for boot, each in pairs.items()},
        doubled={boot: Ranges.doubled(each) for boot, each in pairs.items()},
        gaps=gaps,
        interrupted=interrupted,
        bad_lines=bad_lines,
    )


def _check_kept(size_bytes: int) -> None:
    """Raise ValueError before the results about a file fill the memory. Its rows may cost nothing in the file."""
    if size_bytes > _MOST_KEPT_BYTES:
        raise ValueError(f"its rows, numbers and reports would take more than {_MOST_KEPT_BYTES:,} bytes")


def _check_texts(batch: pa.RecordBatch) -> None:
    """Raise ValueError for a text that is longer than a server's texts, because each row would repeat it."""
    for name, most in _MOST_BYTES.items():
        column = batch.column(name)
        values = column.dictionary if pa.types.is_dictionary(column.type) else column
        if (pc.max(pc.binary_length(values)).as_py() or 0) > most:
            raise ValueError(f"its column {name} has a text of more than {most:,} bytes")


def answer(query: Query) -> list[tuple[Any, ...]]:
    """Return the rows of a query's answer. Raises LakeError if the file cannot be read."""
    try:
        with connect(threads=1) as database:
            # DuckDB takes batch after batch, and keeps what the query needs.
            database.register("batches", pa.RecordBatchReader.from_batches(_QUERIED, _queried(query)))
            database.execute(f"CREATE TEMP VIEW rows AS SELECT * REPLACE ({_HEX}) FROM batches")
            return database.execute(query.sql).fetchall()
    except _UNREADABLE as error:
        raise LakeError(f"{query.file.path} cannot be read: {' '.join(str(error).split())}") from error


def ask(query: Query) -> list[tuple[Any, ...]]:
    """Return the rows of a query's answer; none if the file cannot be read, because `scan` has named it."""
    try:
        return answer(query)
    except LakeError:
        return []


class _Segment:
    """The rows of a segment: their number, their lines, and whether one of them was changed."""

    __slots__ = ("changed", "found", "rows")

    def __init__(self) -> None:
        self.rows, self.found, self.changed = 0, hashlib.sha256(), False

    def sha256(self) -> str:
        """Return what `SegmentRows` has."""
        return "" if self.changed else self.found.hexdigest()


def _batches(file: TableFile, problems: list[str]) -> Iterator[pa.RecordBatch]:
    """Read a file with the columns of `FILE`. Add its faults to `problems`."""
    with open_file(file) as parquet:
        size_bytes = size_of(path_of(file.path))
        _check_kept(_ROW_BYTES * parquet.metadata.num_rows)
        # Spark and DuckDB ignore case in names of columns.
        names = filter(_is_alike, parquet.schema_arrow.names)
        alike = [f"readers may take its column {name} for another" for name in names]
        checked = Checked(parquet)
        for batch in checked.batches(_ROWS_AT_ONCE):
            batch.validate(full=True)
            for each in with_columns(pa.Table.from_batches([batch]), FILE).to_batches():
                _check_texts(each)
                yield each
    for committed in file.committed:
        checked.check_commit(committed)
    if file.size_bytes not in (None, size_bytes):
        # Other readers look for the footer where the file ends then, and there may be another one.
        problems.append(f"{file.path}: its commit says {file.size_bytes:,} bytes, and it has {size_bytes:,}")
    problems += (f"{file.path}: {line}" for line in (*alike, *checked.problems))


def _queried(query: Query) -> Iterator[pa.RecordBatch]:
    """Yield the columns that a `Query` has."""
    for batch in _batches(query.file, []):
        stems = _segments(batch)
        if query.segments is not None:
            is_wanted = pc.is_in(stems.dictionary, pa.array(query.segments, pa.string())).take(stems.indices)
            batch, stems = batch.filter(is_wanted), stems.filter(is_wanted)
        lines = _lines(batch, query.file.hour_us)
        columns = [
            stems,
            pa.concat_arrays([pa.array([], DIGEST), *map(digests_of_lines, lines)]),
            *(batch.column(name) for name in _KEPT),
            batch.column("shipped_time").cast(TIME).cast(pa.int64()),
            pc.is_valid(batch.column("bad_line")),
        ]
        yield pa.RecordBatch.from_arrays(
            [column.cast(field.type) for column, field in zip(columns, _QUERIED, strict=True)], schema=_QUERIED
        )


def _add_lines(segments: Mapping[str, _Segment], stems: pa.DictionaryArray, parts: Iterator[pa.Array]) -> None:
    names, at = stems.dictionary.to_pylist(), 0
    for lines in parts:
        runs, start = pc.run_end_encode(stems.indices.slice(at, len(lines))), 0
        for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            segment, there = segments[names[code]], lines.slice(start, end - start)
            segment.rows += end - start
            segment.changed |= there.null_count > 0
            segment.found.update(content_of(there))
            start = end
        at += len(lines)


def _numbers(batch: pa.RecordBatch) -> Iterator[tuple[str, str, int, int]]:
    """Yield the numbers of rows as ranges: node, boot, first and last number."""
    rows = batch.select(["node", "boot", "seq"])
    if any(column.null_count for column in rows.columns):
        rows = rows.drop_null()
    if not len(rows):
        return
    codes = [column.indices if pa.types.is_dictionary(column.type) else column for column in rows.columns]
    before, after = ([each.slice(at, len(rows) - 1) for each in codes] for at in (0, 1))
    # Addition wraps round at the largest number, so also compare the two numbers.
    follows = pc.and_(pc.equal(pc.add(before[2], 1), after[2]), pc.less(before[2], after[2]))
    for one, other in zip(before[:2], after[:2], strict=True):
        follows = pc.and_(follows, pc.equal(one, other))
    breaks = pc.indices_nonzero(pc.invert(follows)).cast(pa.int64())
    firsts = rows.take(pa.concat_arrays([pa.array([0]), pc.add(breaks, 1)])).to_pylist()
    lasts = rows.column("seq").take(pa.concat_arrays([breaks, pa.array([len(rows) - 1])])).to_pylist()
    for first, last in zip(firsts, lasts, strict=True):
        yield first["node"], first["boot"], first["seq"], last


def _lines(batch: pa.RecordBatch, hour_us: int | None, end: str = "") -> Iterator[pa.Array]:
    """Yield the line of each row, some at a time, with `end` after it; null for a row whose own columns do not fit
    together."""
    events, in_time, at = batch.select(EVENT.names), _is_in_time(batch, hour_us), 0
    for lines in _whole_or_written(batch, events, end):
        fits = in_time.slice(at, len(lines))
        yield lines if pc.all(fits).as_py() else pc.if_else(fits, lines, None)
        at += len(lines)


def _whole_or_written(batch: pa.RecordBatch, events: pa.RecordBatch, end: str) -> Iterator[pa.Array]:
    if all(batch.column(name).null_count == len(batch) for name in WHOLE_LINES):
        yield from some_written_lines(events, end)
        return
    has_whole = pc.is_valid(pc.coalesce(*(plain(batch.column(name)) for name in WHOLE_LINES)))
    apart = pa.array([_line_apart(row, end) for row in batch.filter(has_whole).to_pylist()], pa.string())
    written = written_lines(events.filter(pc.invert(has_whole)), end)
    lines = pc.replace_with_mask(pa.nulls(len(batch), pa.string()), has_whole, apart)
    yield pc.replace_with_mask(lines, pc.invert(has_whole), written)


def _is_in_time(batch: pa.RecordBatch, hour_us: int | None) -> pa.Array:
    """Return True for each row whose columns agree about the time, and whose time is within the hour of its folder."""
    time_us, time = batch.column("time_us"), batch.column("time").cast(TIME).cast(pa.int64())
    if hour_us is None:
        return pc.and_(pc.is_null(time_us), pc.is_null(time))
    hour = pc.and_(pc.greater_equal(time_us, hour_us), pc.less(time_us, hour_us + 3_600_000_000))
    return pc.fill_null(pc.and_(pc.equal(time_us, time), hour), False)


def _is_alike(name: str) -> bool:
    return name not in FILE.names and name.lower() in FILE.names


def _events(batch: pa.RecordBatch, wanted: pa.Array, columns: Sequence[str]) -> pa.RecordBatch:
    """Return some columns of the wanted rows. A row without node, boot or number is not an event."""
    for name in ("node", "boot", "seq"):
        wanted = pc.and_(wanted, pc.is_valid(batch.column(name)))
    found = batch.select(columns).filter(wanted)
    return found.cast(pa.schema([EVENT.field(name) for name in columns]))


def _segments(batch: pa.RecordBatch) -> pa.DictionaryArray:
    """Return the segment of each row as a dictionary, because a file has rows of few segments."""
    column = batch.column("source_file")
    sources = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    names = [_segment_of(each.rpartition("/")[2]) for each in sources.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(sources.indices.fill_null(len(names)), pa.array([*names, ""], pa.string()))


def _segment_of(name: str) -> str:
    """Return the segment of a file with this name; empty if no segment's file has this name."""
    found = _SEGMENT.fullmatch(name) if len(name) <= _MOST_NAME_CHARS else None
    return found[1] if found else ""


def _line_apart(row: Mapping[str, Any], end: str) -> str | None:
    """Return the line of a row that has it, and None if that gives other columns."""
    line = next(row[name] for name in WHOLE_LINES if row[name] is not None)
    given = {**dict.fromkeys((*EVENT.names, *WHOLE_LINES)), **row_of(line)}
    event = _comparable({name: row[name] for name in given})
    return f"{line}{end}" if event == _comparable(given) else None


def _comparable(value: Any) -> Any:
    """Return a value without nulls, and with the type of each value.

    Without the types, `1`, `1.0` and `True` would be equal, and `0.0` and `-0.0` too.
    """
    if isinstance(value, dict):
        return {name: _comparable(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_comparable(each) for each in value]
    return type(value), repr(value)
