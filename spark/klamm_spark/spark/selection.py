"""The part of a spool that the format `klamm_audit` reads: its options `since`, `until` and `node`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from klamm_spark.settings.moments import parse_since
from klamm_spark.spool.layout import NODE_END
from klamm_spark.spool.offsets import Piece, SpoolFollower

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Selection:
    """Events from `since_us` up to, not including, `until_us`, of these nodes; None is no limit.

    A line that is no event has no time and no node: it belongs to the folder that it is in.
    """

    since_us: int | None = None
    until_us: int | None = None
    nodes: tuple[str, ...] | None = None

    @staticmethod
    def of(options: Mapping[str, str], now_us: int) -> Selection:
        """The selection that options ask for, with times such as `24h` before `now_us`. Raises ValueError."""
        nodes = options.get("node")
        names = None if nodes is None else tuple(name.strip() for name in nodes.split(","))
        if names is not None and "" in names:
            raise ValueError(f'the option node takes names, separated by commas, not "{nodes}"')
        return Selection(_moment_us(options, "since", now_us), _moment_us(options, "until", now_us), names)

    def pieces(self, pieces: Iterable[Piece], follower: SpoolFollower) -> Iterator[Piece]:
        """Those that may have events of the selection."""
        for piece in pieces:
            if self.nodes is not None and piece.node.partition(NODE_END)[0] not in self.nodes:
                continue
            if self.since_us is None or not follower.is_older(piece, self.since_us):
                yield piece

    def rows(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of the selection."""
        wanted = pc.scalar(True)
        if self.since_us is not None:
            wanted &= pc.field("time_us") >= self.since_us
        if self.until_us is not None:
            wanted &= pc.field("time_us") < self.until_us
        if self.nodes is not None:
            wanted &= pc.field("node").isin(self.nodes)
        if self == Selection():
            yield batch
        else:
            yield from pa.Table.from_batches([batch]).filter(pc.field("bad_line").is_valid() | wanted).to_batches()


def _moment_us(options: Mapping[str, str], name: str, now_us: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        moment = parse_since(text, _EPOCH + timedelta(microseconds=now_us))
    except ValueError as error:
        raise ValueError(f"the option {name} {error}") from None
    return (moment - _EPOCH) // timedelta(microseconds=1)
