"""`check_sisters`: compares the seals of a node's streams, for `verify`. They name each other, so this finds a stream
that was cut off or removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from klamm_spark.spool.layout import Seal, Sister, folder_name, stream_mark, stream_of


class Sisters(NamedTuple):
    """The results, as sentences: `breaks` about removed or replaced streams, `behind` about streams that may be
    incomplete.
    """

    breaks: list[str]
    behind: list[str]


def check_sisters(
    seals: Mapping[str, Seal], in_spool: Collection[tuple[str, str]], deleting: Collection[tuple[str, str]]
) -> Sisters:
    """Compare the seals of a lake with the sisters that they name.

    A stream is a node with a `stream_mark`. `in_spool` has the streams with segments in the spool. `deleting` has the
    streams whose retention deletes segments before they are shipped.
    """
    known: dict[tuple[str, str], dict[int, Seal]] = defaultdict(dict)
    newest: dict[tuple[str, str], tuple[Sister, Seal]] = {}
    found = Sisters([], [])
    for seal in seals.values():
        known[seal.node, stream_mark(seal.boot)][seal.index] = seal
    for seal in sorted(seals.values(), key=lambda seal: seal.segment):
        for sister in Sister.all_in(seal):
            stream = seal.node, sister.mark
            there = known[stream].get(sister.place)
            if there is not None and there.chain != sister.chain:
                found.breaks.append(f"{there.segment} was replaced: {seal.segment} of {seal.node} names another seal")
            if stream not in newest or newest[stream][0].place < sister.place:
                newest[stream] = sister, seal
    for stream, (sister, seal) in sorted(newest.items()):
        last = max(known[stream], default=-1)
        if sister.place <= last or stream in deleting:
            continue
        name = folder_name(seal.node, stream_of(sister.mark))
        missing = (
            f"{name}: the lake has {last + 1} of its seals, and {seal.segment} names the one with index {sister.place}"
        )
        if last >= 0 or stream in in_spool:
            found.behind.append(f"{missing}: they are not shipped yet, or were cut off")
        else:
            found.breaks.append(f"{missing}: the stream was taken away, or not shipped yet")
    return found
