"""`klamm audit verify`: checks a spool with a lake, or a lake alone, and names every event that is missing or changed.

Node, boot and sequence number identify an event. The numbers of a boot begin with 0. They have no gaps, except gaps
that `audit_gap` events report. So the sets of numbers show the lost events. The sets are kept as ranges. The end of a
boot is in its last seal, or in an `audit_gap` event of the next boot. The hash chain of the spool shows changes there.
`klamm_spark.lake.proof` checks the lake alone. The command line calls `run`, while a server may write the spool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm_spark.events.event import WAS_SHIPPED
from klamm_spark.lake.anchors import read_anchors
from klamm_spark.lake.keys import keys_of
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.log_check import check_log
from klamm_spark.lake.proof import Kept, LakeProof, prove, stream_name
from klamm_spark.lake.ranges import Ranges
from klamm_spark.lake.rows import LakeRows, NodeBoot
from klamm_spark.lake.seals import read_seals
from klamm_spark.lake.sisters import check_sisters
from klamm_spark.lake.tasks import Tasks
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spool.chain import NodeFolder, read_folders, read_numbers
from klamm_spark.spool.layout import Seal, node_folders, stream_mark
from klamm_spark.spool.reader import require_spool, spool_of
from klamm_spark.storage.filesystems import AnyPath, parse_location, path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_FOUND: Final = 1
EXIT_BEHIND: Final = 3
"""The exit code if sealed events are not shipped, and there is no other finding. 2 is for errors that the caller can
correct.
"""
EXIT_UNPINNED: Final = 4
"""The exit code if records of forgotten events have keys that the caller did not name, with no other finding."""
_HEADLINES: Final = {
    0: "every event that was sealed is in the lake exactly once, as it was written",
    EXIT_FOUND: "the lake is not complete, or not as it was written",
    EXIT_BEHIND: "the lake is behind: what it has is as it was written, and the rest is in the spool",
    EXIT_UNPINNED: "the lake is sound if its records of what was forgotten are yours: name your keys with --key-id",
}
SEGMENTS_DELETED: Final = "segments_deleted"
_LINES: Final = 20


@dataclass(slots=True)
class Finding:
    """The result for one boot.

    - `not_shipped`: in sealed segments, but not in the lake.
    - `lost`: neither in the spool nor in the lake, and no `audit_gap` reports them, although later numbers are known.
    - `reported`: neither in the spool nor in the lake, and an `audit_gap` reports them.
    - `unsealed`: like `reported`, but the `audit_gap` is not sealed yet.
    - `dropped`: neither in the spool nor in the lake, but an `audit_gap` says that they were shipped before the
      deletion.
    - `only_in_lake`: not in the spool.
    - `duplicates`: in the lake more than once.
    - `crashed_from`: an `audit_gap` reports that a crash took all events from this number on, if there were any.
    - `unended_from`: it is unknown how the boot ended after this number.
    """

    not_shipped: Ranges = field(default_factory=Ranges)
    lost: Ranges = field(default_factory=Ranges)
    reported: Ranges = field(default_factory=Ranges)
    unsealed: Ranges = field(default_factory=Ranges)
    dropped: Ranges = field(default_factory=Ranges)
    only_in_lake: Ranges = field(default_factory=Ranges)
    duplicates: Ranges = field(default_factory=Ranges)
    crashed_from: int | None = None
    unended_from: int | None = None

    @property
    def sound(self) -> bool:
        """Return True if every written event is in the lake exactly once, is reported as missing, or still waits in the
        spool.
        """
        return not (self.lost or self.dropped or self.duplicates) and self.unended_from is None


@dataclass(slots=True)
class ReportedGaps:
    """The content of `audit_gap` events.

    `ranges` has the missing numbers, and `crashed` the first number that a crash took. `deleting` has the streams (node
    and `stream_mark`) whose retention deleted segments before they were shipped. `shipped` has the numbers that
    retention deleted after they were shipped. `unsealed` has the numbers from an `audit_gap` that is not sealed yet.
    `wrong` has a sentence for each event without a valid range.
    """

    ranges: dict[NodeBoot, Ranges] = field(default_factory=dict)
    crashed: dict[NodeBoot, int] = field(default_factory=dict)
    deleting: set[tuple[str, str]] = field(default_factory=set)
    shipped: dict[NodeBoot, Ranges] = field(default_factory=dict)
    unsealed: dict[NodeBoot, Ranges] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def all_ranges(self) -> Iterator[Mapping[NodeBoot, Ranges]]:
        """Yield all three maps of reported numbers."""
        yield from (self.ranges, self.shipped, self.unsealed)


def run(
    spark: SparkSession | None,
    pipeline: Pipeline,
    *,
    say: Callable[[str], None],
    anchors: AnyPath | None = None,
    checkpoints: Sequence[AnyPath] = (),
) -> int:
    """Check, print every gap, and return the exit code: 0, `EXIT_FOUND` or one of those after it. Raises LakeError.

    Without a spool, check the lake alone. `anchors` is a file, see `klamm_spark.lake.anchors`. `checkpoints` are
    checkpoints of the lake's log that were kept elsewhere, see `klamm_spark.lake.log_check`. With a Spark session, its
    executors read the lake.
    """
    settings, tasks = pipeline.settings, Tasks(spark)
    lake = Lake.of(settings)
    lake.require_events()
    anchored = None if anchors is None else read_anchors(anchors)
    kept = Kept(anchored, check_log(lake, settings, checkpoints, anchored))
    if pipeline.spool is None:
        proof = prove(LakeRows.read(lake, tasks), kept, settings.key_ids, settings.lake_id)
        return _conclude(say, proof, None, ReportedGaps(), (), pinned=bool(settings.key_ids))
    place = parse_location(spool_of(pipeline), Path())
    # Keep a folder as the caller gave it, for the messages.
    spool = place if isinstance(place, Path) else path_of(place)
    require_spool(spool)
    # The spool first: segments that are sealed and shipped meanwhile must not look lost. Without any key, nothing of
    # this server has been shipped yet: `ship` brings the first one into the lake.
    folders = read_folders(
        ((folder, keys_of(lake, folder.name, settings.key_ids, spool) or None) for folder in node_folders(spool)),
        read_seals(lake).seals,
    )
    proof = prove(LakeRows.read(lake, tasks), kept, settings.key_ids, settings.lake_id)
    _add_unread(folders, proof.rows)
    in_spool, reported = _numbers_in(folders)
    return _conclude(say, proof, in_spool, reported, folders, pinned=bool(settings.key_ids))


def _with_forgotten(in_lake: dict[NodeBoot, Ranges], proof: LakeProof) -> dict[NodeBoot, Ranges]:
    """Return the numbers of each boot in the lake, with the numbers of its forgotten events."""
    known = defaultdict[NodeBoot, list[tuple[int, int]]](list)
    for segment, rest in proof.forgotten.segments.items():
        seal = proof.seals.get(segment)
        if seal is not None:
            # A record only counts for numbers that its segment had.
            had = Ranges([(seal.first_seq, seal.last_seq)])
            known[NodeBoot(seal.node, seal.boot)].extend(rest.seqs & had)
    return in_lake | {node_boot: Ranges([*in_lake.get(node_boot, ()), *pairs]) for node_boot, pairs in known.items()}


def _conclude(
    say: Callable[[str], None],
    proof: LakeProof,
    in_spool: Mapping[NodeBoot, Ranges] | None,
    reported: ReportedGaps,
    folders: Sequence[NodeFolder],
    *,
    pinned: bool,
) -> int:
    """Print the results, and return the exit code. `in_spool` is None if there is no spool."""
    rows = proof.rows
    in_lake = _with_forgotten(rows.ranges, proof)
    add_gaps(reported, rows.gaps)
    written = in_lake if in_spool is None else in_spool
    findings = compare(written, in_lake, reported, rows.doubled, known_ends([*folders, *proof.folders]))
    for node_boot in sorted(findings):
        spool = "" if in_spool is None else f"spool {_size(in_spool, node_boot)}, "
        say(f"{node_boot.node}/{node_boot.boot}: {spool}lake {_size(in_lake, node_boot)}")
        for line in _lines(findings[node_boot]):
            say(f"  {line}")
    for folder in folders:
        if folder.signed:
            say(f"{stream_name(folder)}: {folder.signed:,} signatures of seals were checked: {folder.signers()}")
    in_spool_too = {(folder.node, folder.mark) for folder in folders if folder.first is not None}
    sisters = check_sisters(proof.seals, in_spool_too, reported.deleting)
    breaks = [line for folder in folders for line in folder.breaks]
    breaks += [
        *_beginnings([*folders, *proof.folders], reported, proof),
        *proof.breaks,
        *reported.wrong,
        *sisters.breaks,
    ]
    for line in breaks:
        say(f"broken chain: {line}")
    behind = [*sisters.behind, *proof.behind]
    for line in (*behind, *proof.notes()):
        say(line)
    for line in _interrupted(rows.interrupted):
        say(f"outcome unknown: {line}")
    if rows.bad_lines:
        say(f"quarantine: {rows.bad_lines:,} lines that are not events")
    code = 0
    if breaks or not all(finding.sound for finding in findings.values()):
        code = EXIT_FOUND
    elif proof.forgotten.records and not pinned:
        code = EXIT_UNPINNED
    elif behind or any(finding.not_shipped for finding in findings.values()):
        code = EXIT_BEHIND
    say(_HEADLINES[code])
    return code


def compare(
    spool: Mapping[NodeBoot, Ranges],
    lake: Mapping[NodeBoot, Ranges],
    reported: ReportedGaps,
    duplicates: Mapping[NodeBoot, Ranges],
    ends: Ends,
) -> dict[NodeBoot, Finding]:
    """Return a finding for every boot in the spool, in the lake or in an `audit_gap`."""
    findings = {}
    for node_boot in {*spool, *lake, *chain(*reported.all_ranges()), *reported.crashed, *ends.next_seqs}:
        written, shipped = spool.get(node_boot, Ranges()), lake.get(node_boot, Ranges())
        known, once, unsealed = (each.get(node_boot, Ranges()) for each in reported.all_ranges())
        crashed = reported.crashed.get(node_boot)
        lasts = [last for ranges in (written, shipped, known, once, unsealed) for _, last in ranges]
        next_seq = max([*(last + 1 for last in lasts), crashed or 0, ends.next_seqs.get(node_boot, 0)])
        missing = Ranges([(0, next_seq - 1)] if next_seq else []) - (written | shipped)
        findings[node_boot] = Finding(
            not_shipped=written - shipped,
            lost=missing - (known | once | unsealed),
            reported=missing & (known - once),
            unsealed=missing & (unsealed - (known | once)),
            dropped=missing & once,
            only_in_lake=shipped - written,
            duplicates=duplicates.get(node_boot, Ranges()),
            crashed_from=crashed,
            unended_from=next_seq if crashed is None and node_boot in ends.not_in_order else None,
        )
    return findings


class Ends(NamedTuple):
    """The ends of boots, from seals and open segments.

    `next_seqs` has the number after the last one of each boot. `not_in_order` are the boots that ended without a final
    seal.
    """

    next_seqs: Mapping[NodeBoot, int]
    not_in_order: frozenset[NodeBoot]


def known_ends(folders: Iterable[NodeFolder]) -> Ends:
    """Return the ends of all boots that have a file in the spool."""
    next_seqs: dict[NodeBoot, int] = {}
    final: dict[NodeBoot, bool] = {}
    newest: dict[tuple[str, str], str] = {}
    streams: dict[NodeBoot, tuple[str, str]] = {}
    for folder in folders:
        for boot, seal in folder.ends.items():
            node_boot = NodeBoot(folder.node, boot)
            next_seqs[node_boot] = max(seal.last_seq + 1, next_seqs.get(node_boot, 0))
            final[node_boot] = seal.final or final.get(node_boot, False)
            streams[node_boot] = folder.node, folder.mark
        for boot, first_seq in folder.open.items():
            node_boot = NodeBoot(folder.node, boot)
            next_seqs[node_boot] = max(first_seq, next_seqs.get(node_boot, 0))
        stream = folder.node, folder.mark
        newest[stream] = max([newest.get(stream, ""), *folder.ends, *folder.open])
    over = (
        node_boot for node_boot, ended in final.items() if not ended and node_boot.boot < newest[streams[node_boot]]
    )
    return Ends(next_seqs, frozenset(over))


def add_gaps(reported: ReportedGaps, gaps: Iterable[Mapping[str, Any]]) -> None:
    """Add the gaps of further `audit_gap` events. Without a last number, it is unknown how many events are missing."""
    found: dict[NodeBoot, list[tuple[int, int]]] = defaultdict(list)
    once: dict[NodeBoot, list[tuple[int, int]]] = defaultdict(list)
    for gap in gaps:
        was_shipped = gap.get("detail") == WAS_SHIPPED
        if gap.get("action") == SEGMENTS_DELETED and not was_shipped:
            reported.deleting.add((gap["node"], stream_mark(gap["boot"])))
        node_boot, first, last = NodeBoot(gap["node"], gap.get("gap_boot") or gap["boot"]), *_bounds(gap)
        if first is not None and last is not None and first > last:
            reported.wrong.append(f"{gap.get('event_id')} reports a gap from {first} to {last}, which is none")
        elif first is not None and last is not None:
            (once if was_shipped else found)[node_boot].append((first, last))
        elif first is not None:
            reported.crashed[node_boot] = min(first, reported.crashed.get(node_boot, first))
    for ranges, all_pairs in ((reported.ranges, found), (reported.shipped, once)):
        for node_boot, pairs in all_pairs.items():
            ranges[node_boot] = Ranges(pairs) | ranges.get(node_boot, Ranges())


def _bounds(gap: Mapping[str, Any]) -> tuple[int | None, int | None]:
    return gap.get("gap_first_seq"), gap.get("gap_last_seq")


def _beginnings(folders: Iterable[NodeFolder], reported: ReportedGaps, proof: LakeProof) -> list[str]:
    """Return a break for each stream whose first segments are gone: they were not shipped, and retention has not
    reported them.
    """
    sealed: dict[tuple[str, str], list[int]] = defaultdict(list)
    for seal in proof.seals.values():
        sealed[seal.node, stream_mark(seal.boot)].append(seal.index)
    lines = []
    for folder in folders:
        first = folder.first
        if first is None or (folder.node, folder.mark) in reported.deleting:
            continue
        count = sum(index < first.index for index in sealed[folder.node, folder.mark])
        if count < first.index:
            lines.append(
                f"{first.segment} is segment {first.index:,} of {folder.node}; of those before it {count:,} are in the "
                "lake, and no audit_gap reports the others"
            )
    return list(dict.fromkeys(lines))


def _interrupted(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the state changes whose outcome is lost in a crash. Only the server's state shows if they were executed."""
    for event in events[:_LINES]:
        named = ", ".join(f"{one['type']} {one['name']}" for one in event["resources"] or () if one)
        client = f"{event['principal']} from {event['client_address']}"
        yield f"{event['api_name']} of {named} by {client}, which a crash interrupted ({event['event_id']})"
    if len(events) > _LINES:
        yield "and more: klamm audit report counts them"


def _add_unread(folders: Sequence[NodeFolder], rows: LakeRows) -> None:
    """Add the numbers of segments of which only the bytes were looked at. Raises OSError."""
    again = list[tuple[NodeFolder, AnyPath, Seal]]()
    for folder in folders:
        same = defaultdict[NodeBoot, list[tuple[AnyPath, Seal]]](list)
        for path, seal in folder.unread:
            if rows.are_bytes_of(seal):
                same[NodeBoot(seal.node, seal.boot)].append((path, seal))
            else:
                again.append((folder, path, seal))
        for node_boot, segments in same.items():
            claimed = Ranges((seal.first_seq, seal.last_seq) for _, seal in segments)
            if claimed - rows.ranges.get(node_boot, Ranges()):
                # A seal is wrong about its numbers, or all lines are in the quarantine, whose rows have no numbers.
                again += ((folder, *segment) for segment in segments)
            else:
                folder.seqs += ((*node_boot, first, last) for first, last in claimed)
    found = Tasks().run(read_numbers, [(path, seal) for _, path, seal in again])
    for (folder, _, _), numbers in zip(again, found, strict=True):
        folder.seqs += numbers.seqs
        folder.sealed_gaps += numbers.gaps


def _numbers_in(folders: Sequence[NodeFolder]) -> tuple[dict[NodeBoot, Ranges], ReportedGaps]:
    """Return the numbers of all sealed segments of a spool, and the gaps that it reports."""
    pairs: dict[NodeBoot, list[tuple[int, int]]] = defaultdict(list)
    for node, boot, first, last in chain(*(folder.seqs for folder in folders)):
        pairs[NodeBoot(node, boot)].append((first, last))
    reported = ReportedGaps()
    add_gaps(reported, chain(*(folder.sealed_gaps for folder in folders)))
    unsealed = ReportedGaps()
    add_gaps(unsealed, chain(*(folder.gaps for folder in folders)))
    for node_boot, first in unsealed.crashed.items():
        reported.crashed[node_boot] = min(first, reported.crashed.get(node_boot, first))
    reported.unsealed = unsealed.ranges
    reported.wrong += unsealed.wrong
    return {node_boot: Ranges(found) for node_boot, found in pairs.items()}, reported


def _size(where: Mapping[NodeBoot, Ranges], node_boot: NodeBoot) -> str:
    ranges = where.get(node_boot)
    return f"{ranges.count():,} events ({ranges})" if ranges else "nothing"


def _lines(finding: Finding) -> Iterator[str]:
    named = {
        "not shipped": finding.not_shipped,
        "lost, and no audit_gap reports it": finding.lost,
        "more than once in the lake": finding.duplicates,
        "shipped before it was deleted from the spool, and not in this lake": finding.dropped,
        "reported by audit_gap": finding.reported,
        "reported by an audit_gap that is not sealed yet": finding.unsealed,
        "deleted from the spool": finding.only_in_lake,
    }
    yield from (f"{name}: {ranges}" for name, ranges in named.items() if ranges)
    if finding.crashed_from is not None:
        yield f"reported by audit_gap: a crash took everything from {finding.crashed_from} on"
    if finding.unended_from is not None:
        first = finding.unended_from
        yield f"no final seal, and no audit_gap of a crash: whether there were events from {first} on is unknown"
