"""The proof of the lake alone: the seals of each stream are an unbroken, signed chain, and match the rows.

It never reads the spool. If events were cut off at the end of a chain, only an anchor or a kept checkpoint shows it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm_spark.lake.anchors import Anchors, compare_anchors
from klamm_spark.lake.forgotten import KnownForgotten, read_forgotten
from klamm_spark.lake.keys import keys_of
from klamm_spark.lake.log_check import LogFindings
from klamm_spark.lake.ranges import Ranges
from klamm_spark.lake.seals import read_seals
from klamm_spark.spool.chain import NodeFolder, SealChain
from klamm_spark.spool.layout import Seal, folder_name, stream_mark, stream_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from klamm_spark.lake.layout import Lake
    from klamm_spark.lake.rows import LakeRows

_NAMED: Final = 5


class Kept(NamedTuple):
    """The evidence from outside the lake: anchors, and the results of the comparison with checkpoints of the log."""

    anchors: Anchors | None
    log: LogFindings


@dataclass(frozen=True, slots=True)
class LakeProof:
    """The result of the proof.

    `folders` are the streams that the lake has seals of. `breaks` and `behind` are sentences: about each break, and
    about what `ship` has not finished. `lake_id` is the id that records of forgotten events must name.
    """

    rows: LakeRows
    folders: list[NodeFolder]
    seals: Mapping[str, Seal]
    forgotten: KnownForgotten
    breaks: list[str]
    behind: list[str]
    lake_id: str
    log: LogFindings

    def notes(self) -> Iterator[str]:
        """Yield facts that are worth knowing, and no faults."""
        for folder in self.folders:
            name = stream_name(folder)
            if folder.signed:
                yield f"{name}: {folder.signed:,} signatures of seals in the lake were checked: {folder.signers()}"
            elif folder.first is not None:
                yield f"{name}: its seals are not signed: who can write to the lake can write others"
            if folder.unsigned:
                yield (
                    f"{name}: {folder.unsigned:,} seals before the first signed one are not signed: its signature "
                    "covers their lines, and not what else they say"
                )
        if self.forgotten.records:
            lines = sum(rest.seqs.count() for rest in self.forgotten.segments.values())
            signers = ", ".join(f"{count:,} by {key}" for key, count in sorted(self.forgotten.signed_by.items()))
            yield f"forgotten: {lines:,} events by {self.forgotten.records:,} records, signed: {signers or 'none'}"
            yield f"forgotten: the lake of the records must be {self.lake_id}"
        yield from self.log.notes


def prove(
    rows: LakeRows,
    kept: Kept | None = None,
    trusted: Collection[str] = (),
    lake_id: str = "",
) -> LakeProof:
    """Check the whole lake. For `trusted` see `PublicKeys`.

    With a `lake_id`, the lake must have this id, and records of forgotten events must name it. Raises LakeError,
    KeyFileError.
    """
    from klamm_spark.lake.rows import check_rows

    lake = rows.lake
    seals, breaks = read_seals(lake)
    unknown = {stem: seal for stem, seal in rows.appended.items() if stem not in seals}
    owed = {stem: seal for stem, seal in unknown.items() if stem in rows.segments}
    seals |= owed
    table_id = lake.table_id()
    if lake_id not in ("", table_id):
        breaks.append(f"{lake.events} is not the lake {lake_id}: its id is {table_id}")
    forgotten = read_forgotten(lake, lake_id or table_id, trusted)
    # Leave out segments that were shipped after the files were listed. The next `verify` checks them.
    known = {stem: seal for stem, seal in seals.items() if rows.may_have(stem)}
    folders = check_seals(lake, known, trusted)
    breaks = [*breaks, *forgotten.breaks, *(line for folder in folders for line in folder.breaks)]
    # The last append was read before the files were listed, so its rows should be in them.
    gone = unknown.keys() - owed.keys() - forgotten.segments.keys()
    breaks += [f"{stem}: the last append has brought it, and the lake has none of its rows" for stem in sorted(gone)]
    for segment, rest in sorted(forgotten.segments.items()):
        seal = seals.get(segment)
        if seal is not None and rest.seqs - Ranges([(seal.first_seq, seal.last_seq)]):
            breaks.append(f"{segment}: numbers are said to be forgotten that it does not have")
    breaks += check_rows(rows, known, forgotten.segments)
    anchors, log = kept or Kept(None, LogFindings([], [], []))
    if anchors is not None:
        breaks += compare_anchors(anchors, seals)
    behind = [*_named(owed), *log.behind]
    return LakeProof(rows, folders, seals, forgotten, [*breaks, *log.breaks], behind, lake_id or table_id, log)


def _named(owed: Collection[str]) -> Iterator[str]:
    if owed:
        yield (
            f"the last append has brought {len(owed):,} segments with their seals, and the ledger lacks them: "
            f"{', '.join(sorted(owed)[:_NAMED])}. ship adds them now, or when it starts again"
        )


def stream_name(folder: NodeFolder) -> str:
    """Return the name of the stream's folder in the spool."""
    return folder_name(folder.node, stream_of(folder.mark))


def check_seals(lake: Lake, seals: Mapping[str, Seal], trusted: Collection[str] = ()) -> list[NodeFolder]:
    """Check that the seals of each stream are an unbroken chain, signed with its keys. Raises KeyFileError."""
    streams: dict[tuple[str, str], list[str]] = defaultdict(list)
    for stem in sorted(seals):
        streams[seals[stem].node, stream_mark(seals[stem].boot)].append(stem)
    found = []
    for (node, mark), stems in sorted(streams.items()):
        folder = NodeFolder(node, mark, first=seals[stems[0]])
        chain = SealChain(folder, keys_of(lake, stream_name(folder), trusted))
        for stem in stems:
            chain.add(f"{stem} in the lake", stem, seals[stem])
        chain.end()
        found.append(folder)
    return found
