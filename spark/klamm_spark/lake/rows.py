"""The check that the rows of the lake match the seals. A row gives its line again, and a seal covers the line's digest.

A task reads each file once, see `klamm_spark.lake.scanned`. Segments whose rows are in several files, or do not match
their seal, are read again. The ledger has the digests of a segment's lines in addition to the seal. They show which
event differs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from klamm_spark.lake.appends import seals_of_last
from klamm_spark.lake.commits import with_statements
from klamm_spark.lake.files import TableFile, files_of, hidden_by
from klamm_spark.lake.forgotten import ALL_LINES, Forgotten
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.ranges import Ranges
from klamm_spark.lake.scanned import CHANGED, Query, Scanned, SegmentRows, ask, scan
from klamm_spark.lake.seals import line_digests, read_seals
from klamm_spark.lake.tasks import Tasks
from klamm_spark.spool.layout import Seal, lines_sha256, parse_name

_SEGMENTS_LOOKED_AT: Final = 16
_EVENTS_NAMED: Final = 20
_ROWS_AT_ONCE: Final = 1 << 22
"""The maximum number of rows that are compared at once. A segment does not have more lines."""


class NodeBoot(NamedTuple):
    """One boot of one server. Its events are numbered from 0."""

    node: str
    boot: str


@dataclass(slots=True)
class LakeRows:
    """The content of the lake's files.

    `segments` has the rows by file, `ranges` the numbers of each boot, and `doubled` the numbers that occur more than
    once. `gaps` are `audit_gap` events, `interrupted` state changes without an outcome, and `problems` faults of files.
    `ship` may run meanwhile. So two things are read before the files: `sealed`, the segments in the ledger, and
    `appended`, the segments of the last append.
    """

    lake: Lake
    tasks: Tasks
    segments: dict[str, dict[TableFile, SegmentRows]] = field(default_factory=lambda: defaultdict(dict))
    ranges: dict[NodeBoot, Ranges] = field(default_factory=dict)
    doubled: dict[NodeBoot, Ranges] = field(default_factory=dict)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    interrupted: list[dict[str, Any]] = field(default_factory=list)
    bad_lines: int = 0
    problems: list[str] = field(default_factory=list)
    sealed: frozenset[str] = frozenset()
    appended: Mapping[str, Seal] = field(default_factory=dict)

    @staticmethod
    def read(lake: Lake, tasks: Tasks) -> LakeRows:
        """Read all files. Raises LakeError."""
        sealed, appended = frozenset(read_seals(lake).seals), seals_of_last(lake)
        files, problems = with_statements(lake, files_of(lake))
        found = LakeRows(lake, tasks, problems=[*hidden_by(lake), *problems])
        found.sealed, found.appended = sealed, appended
        numbers = defaultdict[NodeBoot, list[tuple[int, int]]](list)
        for file, scanned in zip(files, tasks.run(scan, files), strict=True):
            found._add(file, scanned)
            for ranges in (scanned.seqs, scanned.doubled):
                for node_boot, pairs in ranges.items():
                    numbers[NodeBoot(*node_boot)].extend(pairs)
        # Make each set once. Adding file after file would take time by the square of the number of ranges.
        found.ranges = {node_boot: Ranges(pairs) for node_boot, pairs in numbers.items()}
        doubled = ((node_boot, Ranges.doubled(pairs)) for node_boot, pairs in numbers.items())
        found.doubled = {node_boot: again for node_boot, again in doubled if again}
        found.interrupted.sort(key=lambda event: (event["node"], event["boot"], event["seq"]))
        return found

    def _add(self, file: TableFile, scanned: Scanned) -> None:
        self.problems += scanned.problems
        for stem, rows in scanned.segments.items():
            self.segments[stem][file] = rows
        self.gaps += scanned.gaps
        self.interrupted += scanned.interrupted
        self.bad_lines += scanned.bad_lines

    def may_have(self, stem: str) -> bool:
        """Return False if a segment was shipped after the files were listed, so that its rows were not read."""
        return stem in self.sealed or stem in self.segments

    def count(self, stem: str) -> int:
        """Return the number of rows that the lake has of a segment."""
        return sum(part.rows for part in self.segments.get(stem, {}).values())

    def are_bytes_of(self, seal: Seal) -> bool:
        """Return whether the rows of a segment stand in one file, and give the very bytes that were sealed."""
        return list(self.segments.get(seal.segment, {}).values()) == [SegmentRows(seal.events, seal.sha256)]

    def of_segments(self, columns: str, stems: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        """Yield these columns of all rows of some segments."""
        wanted = defaultdict[TableFile, list[str]](list)
        for stem in stems:
            for file in self.segments.get(stem, ()):
                wanted[file].append(stem)
        queries = [Query(file, f"SELECT {columns} FROM rows", names) for file, names in wanted.items()]
        for answer in self.tasks.run(ask, queries) if queries else ():
            yield from answer


def check_rows(rows: LakeRows, seals: Mapping[str, Seal], forgotten: Mapping[str, Forgotten]) -> Iterator[str]:
    """Yield a sentence for each row that no seal proves, and for each sealed line that the lake lacks."""
    yield from rows.problems
    yield from _without_a_seal(rows, seals, forgotten)
    differing = []
    known = _by_segment(rows, seals, forgotten)
    for stem in sorted(seals):
        seal, rest = seals[stem], forgotten.get(stem)
        there = known[stem]
        gone = rest.lines if rest is not None else 0
        if rest is not None and rest.digests is ALL_LINES:
            if there.rows:
                yield f"{stem}: {there.rows:,} rows are in the lake, and all of it is said to be forgotten"
        elif there.sha256 != seal.lines_sha256:
            differing.append(stem)
        elif there.rows + gone > seal.events and gone:
            yield f"{stem}: lines are in the lake that are said to be forgotten: run klamm audit forget again"
        elif there.rows + gone != seal.events:
            yield f"{stem}: its seal says {seal.events:,} lines, the lake has {there.rows + gone:,}"
    yield from _differing(rows, differing, seals, forgotten)


def _by_segment(
    rows: LakeRows, seals: Mapping[str, Seal], forgotten: Mapping[str, Forgotten]
) -> dict[str, SegmentRows]:
    """Return the rows of each sealed segment, in all files, and the `lines_sha256` of these and what is forgotten.

    Only of segments that are in several files, in another order or not whole, each line is looked at: for that their
    files are read again.
    """
    found, several = {}, []
    for stem, seal in seals.items():
        found[stem] = SegmentRows(rows.count(stem), "")
        if stem not in forgotten and rows.are_bytes_of(seal):
            found[stem] = SegmentRows(seal.events, seal.lines_sha256)
        elif found[stem].rows <= _ROWS_AT_ONCE:
            several.append(stem)
    for some in _in_parts(several, rows.count):
        digests = {stem: set(forgotten[stem].digests or ()) if stem in forgotten else set[str]() for stem in some}
        for stem, digest in rows.of_segments("segment, digest", some):
            digests[stem].add(digest)
        for stem, each in digests.items():
            found[stem] = found[stem]._replace(sha256=lines_sha256(each))
    return found


def _in_parts(stems: Iterable[str], count: Callable[[str], int]) -> Iterator[list[str]]:
    """Yield segments in parts of at most `_ROWS_AT_ONCE` rows, because a text for each row is in memory."""
    part, left = list[str](), _ROWS_AT_ONCE
    for stem in stems:
        left -= count(stem)
        if part and left < 0:
            yield part
            part, left = [], _ROWS_AT_ONCE - count(stem)
        part.append(stem)
    yield part


def _without_a_seal(rows: LakeRows, seals: Mapping[str, Seal], forgotten: Mapping[str, Forgotten]) -> Iterator[str]:
    for stem in sorted(rows.segments.keys() - seals.keys()):
        name = stem if parse_name(stem) else f'"{stem}"'
        yield f"{name}: {rows.count(stem):,} rows, and the lake has no seal of it"
    for stem in sorted(forgotten.keys() - seals.keys()):
        yield f"{stem}: said to be forgotten, and the lake has no seal of it"


def _differing(
    rows: LakeRows, stems: Sequence[str], seals: Mapping[str, Seal], forgotten: Mapping[str, Forgotten]
) -> Iterator[str]:
    looked_at = next(_in_parts([stem for stem in stems if rows.count(stem) <= _ROWS_AT_ONCE], rows.count))
    looked_at = looked_at[:_SEGMENTS_LOOKED_AT]
    there: dict[str, list[tuple[str, str | None]]] = {stem: [] for stem in looked_at}
    for stem, digest, event_id in rows.of_segments("segment, digest, event_id", looked_at):
        there[stem].append((digest, event_id))
    digests = line_digests(rows.lake, looked_at) if looked_at else {}
    for stem in looked_at:
        rest = forgotten.get(stem)
        yield from _named(seals[stem], there[stem], digests.get(stem, []), rest.digests or () if rest else ())
    for stem in stems:
        if stem not in looked_at:
            yield f"{stem}: its rows differ from its seal"


def _named(
    seal: Seal, there: list[tuple[str, str | None]], lists: Iterable[list[str]], forgotten: Iterable[str]
) -> Iterator[str]:
    """Name the events of a segment that were changed, inserted or dropped."""
    known = next((each for each in lists if lines_sha256(each) == seal.lines_sha256), None)
    lines: Mapping[str, Any] = _lines(seal, known or [])
    extra = Counter(name or "a line of the quarantine" for each, name in there if each not in lines)
    if known is None:
        yield (
            f"{seal.segment}: its rows differ from its seal, and so do the digests of its lines: which of the events "
            f"{seal.first_seq} to {seal.last_seq} of {seal.node}/{seal.boot} it is cannot be known"
        )
        extra = Counter(name or "a line of the quarantine" for each, name in there if each == CHANGED)
    present = {each for each, _ in there} | set(forgotten)
    missing = {lines[each] for each in lines.keys() - present}
    named = [
        *(f"{name} was {'changed' if name in missing or known is None else 'inserted'}" for name in sorted(extra)),
        *(f"{name} is missing" for name in sorted(missing - extra.keys())),
    ]
    yield from (f"{seal.segment}: {line}" for line in named[:_EVENTS_NAMED])
    if len(named) > _EVENTS_NAMED:
        yield f"{seal.segment}: and {len(named) - _EVENTS_NAMED:,} more of its {seal.events:,} events"
    if not named and known is not None:
        yield f"{seal.segment}: its rows differ from its seal"


def _lines(seal: Seal, digests: list[str]) -> dict[str, str]:
    """Return the names of lines by their digests. If the segment's numbers have no gaps, they are names of events."""
    whole = seal.last_seq - seal.first_seq + 1 == len(digests)
    return {
        each: f"{seal.node}/{seal.boot}/{seal.first_seq + at}" if whole else f"line {at + 1}"
        for at, each in enumerate(digests)
    }
