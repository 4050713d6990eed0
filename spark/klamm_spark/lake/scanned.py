"""A task over one file of the lake's table: what its rows prove, and rows of it. It runs in one pass, without Spark."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import isnan
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
from klamm_spark.spool.layout import line_digest, lines_sha256, split_digests
from klamm_spark.spool.written_lines import DIGEST, plain, written_digests
from klamm_spark.storage.database import connect

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
_HEX: Final = f"coalesce(lower(hex(digest)), '{CHANGED}') AS digest"
_KEPT: Final = ("event_id", "node", "boot", "seq", "time_us", "kind")


class SegmentRows(NamedTuple):
    """The rows that a file has of a segment, and their `lines_sha256`."""

    rows: int
    sha256: str


class Scanned(NamedTuple):
    """The content of a file. `problems`: it cannot be read, or not by all readers alike, or its statistics are wrong.
    `seqs` are ranges of numbers, `doubled` of those that it has more than once; `gaps` are `audit_gap` events,
    `interrupted` state changes without an outcome."""

    problems: Sequence[str] = ()
    segments: Mapping[str, SegmentRows] = {}
    seqs: Sequence[tuple[str, str, int, int]] = ()
    doubled: Sequence[tuple[str, str, int, int]] = ()
    gaps: Sequence[dict[str, Any]] = ()
    interrupted: Sequence[dict[str, Any]] = ()
    bad_lines: int = 0


class Query(NamedTuple):
    """A question to a file: a query over the table `rows`, see `_row_table`."""

    file: TableFile
    sql: str


def scan(file: TableFile) -> Scanned:
    """Look at all rows of a file."""
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
    bad_lines = 0
    for batch in _batches(file, problems):
        _add_digests(segments, _segments(batch), _digests(batch, file.hour_us))
        for node, boot, first, last in _numbers(batch):
            pairs[node, boot].append((first, last))
        kind = plain(batch.column("kind"))
        gaps += _events(batch, pc.equal(kind, AUDIT_GAP), GAP_COLUMNS)
        ended = pc.and_(pc.equal(kind, REQUEST), pc.equal(plain(batch.column("action")), "interrupted"))
        interrupted += _events(batch, ended, INTERRUPTED_COLUMNS)
        bad_lines += len(batch) - batch.column("bad_line").null_count
    return Scanned(
        problems=problems,
        segments={stem: SegmentRows(each.rows, each.sha256()) for stem, each in segments.items()},
        seqs=[(*boot, *pair) for boot, each in pairs.items() for pair in Ranges(each)],
        doubled=[(*boot, *pair) for boot, each in pairs.items() for pair in Ranges.doubled(each)],
        gaps=gaps,
        interrupted=interrupted,
        bad_lines=bad_lines,
    )


def answer(query: Query) -> list[tuple[Any, ...]]:
    """The answer of a file. Raises LakeError if it cannot be read."""
    try:
        with connect(threads=1) as database:
            database.execute(
                "CREATE TABLE rows (segment VARCHAR, digest VARCHAR, event_id VARCHAR, node VARCHAR, boot VARCHAR, "
                "seq BIGINT, time_us BIGINT, kind VARCHAR, shipped_us BIGINT, is_bad BOOLEAN)"
            )
            for batch in _batches(query.file, []):
                database.register("batch", _row_table(batch, _digests(batch, query.file.hour_us)))
                database.execute(f"INSERT INTO rows SELECT * REPLACE ({_HEX}) FROM batch")
                database.unregister("batch")
            return database.execute(query.sql).fetchall()
    except _UNREADABLE as error:
        raise LakeError(f"{query.file.path} cannot be read: {' '.join(str(error).split())}") from error


def ask(query: Query) -> list[tuple[Any, ...]]:
    """The answer of a file; none if it cannot be read: `scan` names it."""
    try:
        return answer(query)
    except LakeError:
        return []


class _Segment:
    """The rows of a segment: their number, the digests of their lines, and whether one of them was `CHANGED`."""

    __slots__ = ("changed", "digests", "rows")

    def __init__(self) -> None:
        self.rows, self.digests, self.changed = 0, bytearray(), False

    def sha256(self) -> str:
        """Its `lines_sha256`."""
        return lines_sha256([*split_digests(self.digests.hex()), *([CHANGED] if self.changed else [])])


def _batches(file: TableFile, problems: list[str]) -> Iterator[pa.RecordBatch]:
    """Read a file with the columns of `FILE`, and add to what is wrong with it."""
    with open_file(file) as parquet:
        # Spark and DuckDB do not tell capital letters.
        names = filter(_is_alike, parquet.schema_arrow.names)
        alike = [f"readers may take its column {name} for another" for name in names]
        checked = Checked(parquet)
        for batch in checked.batches(_ROWS_AT_ONCE):
            batch.validate(full=True)
            yield from with_columns(pa.Table.from_batches([batch]), FILE).to_batches()
    for committed in file.committed:
        checked.check_commit(committed)
    problems += (f"{file.path}: {line}" for line in (*alike, *checked.problems))


def _row_table(batch: pa.RecordBatch, digests: pa.Array) -> pa.Table:
    """The columns that a `Query` has."""
    shipped_us = batch.column("shipped_time").cast(TIME).cast(pa.int64())
    is_bad = pc.is_valid(batch.column("bad_line"))
    kept = [batch.column(name) for name in _KEPT]
    names = ["segment", "digest", *_KEPT, "shipped_us", "is_bad"]
    return pa.table([_segments(batch), digests, *kept, shipped_us, is_bad], names=names)


def _add_digests(segments: Mapping[str, _Segment], stems: pa.DictionaryArray, digests: pa.Array) -> None:
    runs, start, names = pc.run_end_encode(stems.indices), 0, stems.dictionary.to_pylist()
    for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        segment, there = segments[names[code]], digests.slice(start, end - start)
        segment.rows += len(there)
        if there.null_count:
            segment.changed, there = True, there.drop_null()
        size = there.type.byte_width
        segment.digests += memoryview(there.buffers()[1])[there.offset * size : (there.offset + len(there)) * size]
        start = end


def _numbers(batch: pa.RecordBatch) -> Iterator[tuple[str, str, int, int]]:
    """The numbers of rows: those that follow one another together."""
    rows = batch.select(["node", "boot", "seq"])
    if any(column.null_count for column in rows.columns):
        rows = rows.drop_null()
    if not len(rows):
        return
    codes = [column.indices if pa.types.is_dictionary(column.type) else column for column in rows.columns]
    before, after = ([each.slice(at, len(rows) - 1) for each in codes] for at in (0, 1))
    # Above the largest number comes the smallest.
    follows = pc.and_(pc.equal(pc.add(before[2], 1), after[2]), pc.less(before[2], after[2]))
    for one, other in zip(before[:2], after[:2], strict=True):
        follows = pc.and_(follows, pc.equal(one, other))
    breaks = pc.indices_nonzero(pc.invert(follows)).cast(pa.int64())
    firsts = rows.take(pa.concat_arrays([pa.array([0]), pc.add(breaks, 1)])).to_pylist()
    lasts = rows.column("seq").take(pa.concat_arrays([breaks, pa.array([len(rows) - 1])])).to_pylist()
    for first, last in zip(firsts, lasts, strict=True):
        yield first["node"], first["boot"], first["seq"], last


def _digests(batch: pa.RecordBatch, hour_us: int | None) -> pa.Array:
    """The digest of each row's line, in bytes; null for a row whose own columns do not fit together."""
    whole = pc.coalesce(*(plain(batch.column(name)) for name in WHOLE_LINES))
    events = batch.select(EVENT.names)
    if whole.null_count == len(whole):
        digests = written_digests(events)
    else:
        is_plain = pc.is_null(whole)
        apart = pa.array([_digest_apart(row) for row in batch.filter(pc.invert(is_plain)).to_pylist()], DIGEST)
        digests = pc.replace_with_mask(
            pc.replace_with_mask(pa.nulls(len(batch), DIGEST), is_plain, written_digests(events.filter(is_plain))),
            pc.invert(is_plain),
            apart,
        )
    return pc.if_else(_is_in_time(batch, hour_us), digests, None)


def _is_in_time(batch: pa.RecordBatch, hour_us: int | None) -> pa.Array:
    """Return for each row whether its time is what its event says, and of the hour of its folder."""
    time_us, time = batch.column("time_us"), batch.column("time").cast(TIME).cast(pa.int64())
    if hour_us is None:
        return pc.and_(pc.is_null(time_us), pc.is_null(time))
    hour = pc.and_(pc.greater_equal(time_us, hour_us), pc.less(time_us, hour_us + 3_600_000_000))
    return pc.fill_null(pc.and_(pc.equal(time_us, time), hour), False)


def _is_alike(name: str) -> bool:
    return name not in FILE.names and name.lower() in FILE.names


def _events(batch: pa.RecordBatch, wanted: pa.Array, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Columns of the wanted rows, in their types; what has no node, boot or number is no event."""
    for name in ("node", "boot", "seq"):
        wanted = pc.and_(wanted, pc.is_valid(batch.column(name)))
    found = batch.select(columns).filter(wanted)
    events: list[dict[str, Any]] = found.cast(pa.schema([EVENT.field(name) for name in columns])).to_pylist()
    return events


def _segments(batch: pa.RecordBatch) -> pa.DictionaryArray:
    """The segments of rows, by their files; there are few."""
    column = batch.column("source_file")
    sources = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    names = [found[1] if (found := _SEGMENT.search(each)) else "" for each in sources.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(sources.indices.fill_null(len(names)), pa.array([*names, ""], pa.string()))


def _digest_apart(row: Mapping[str, Any]) -> bytes | None:
    """The digest of a row that has its line, and None if that gives other columns."""
    line = next(row[name] for name in WHOLE_LINES if row[name] is not None)
    given = {**dict.fromkeys((*EVENT.names, *WHOLE_LINES)), **row_of(line)}
    event = _comparable({name: row[name] for name in given})
    return bytes.fromhex(line_digest(line.encode())) if event == _comparable(given) else None


def _comparable(value: Any) -> Any:
    """Return a value without nulls, and with a text for a double that is no number: it equals nothing."""
    if isinstance(value, dict):
        return {name: _comparable(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_comparable(each) for each in value]
    return repr(value) if isinstance(value, float) and isnan(value) else value
