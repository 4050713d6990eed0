"""Plans of regular batches, for an interpreter: what replaces a walk over records of one shape.

Producers often send records of one shape. So a batch that was found sound and whose records are regular leaves a plan:
the bytes that every regular batch of its size and count has at certain places. A few slices, each of which takes one
byte of every record, then replace the walk.
"""

from __future__ import annotations

import contextlib
from itertools import chain
from typing import Final, NamedTuple

from klamm import KafkaError
from klamm.wire.primitives import ReadBuffer
from klamm_broker.log.record_walk import varint

# Zigzag of 0 to 63 takes one byte, that of 64 to 8191 two.
DELTAS_OF_ONE_BYTE: Final = 64
DELTAS_OF_TWO_BYTES: Final = 8192
LOW_BYTES: Final = bytes(2 * delta & 0x7F | 0x80 for delta in range(DELTAS_OF_ONE_BYTE, DELTAS_OF_TWO_BYTES))
HIGH_BYTES: Final = bytes(2 * delta >> 7 for delta in range(DELTAS_OF_ONE_BYTE, DELTAS_OF_TWO_BYTES))

_KEY_AND_VALUE: Final = (0, 1)
_MAX_PLANS: Final = 1024


class _Plan(NamedTuple):
    """What is the same in all regular batches of one size and count; a slice takes one byte of each record.

    `ends` are the last bytes of timestamps, and `beginnings` those before them.
    """

    columns: tuple[tuple[slice, bytes], ...]
    ends: tuple[slice, ...]
    beginnings: tuple[slice, ...]

    def fits(self, body: memoryview) -> bool:
        for places, expected in self.columns:
            if body[places].tobytes() != expected:
                return False
        for places in self.ends:
            if not body[places].tobytes().isascii():
                return False
        return all(min(body[places].tobytes()) > 0x7F for places in self.beginnings)


plans: Final[dict[tuple[int, int], _Plan]] = {}
"""By the bytes of the records and their count."""


def fits_plan(body: ReadBuffer, count: int) -> bool:
    """Whether these are regular records, and sound; False if that is not known."""
    plan = plans.get((len(body), count))
    return plan is not None and plan.fits(memoryview(body))


def learn_plan(body: bytes, count: int) -> None:
    """Remember the plan of a sound batch, if it is regular: records of one size as long as their deltas have one."""
    # Of records of one size, those from the 65th on may have up to three bytes more.
    more_bytes = len(body) - count * _size_bytes(body, 0)
    if more_bytes == 0 or 0 < more_bytes <= 3 * (count - DELTAS_OF_ONE_BYTE):
        # An irregular batch may have any bytes where a regular one has its 65th record: it is sound nevertheless.
        with contextlib.suppress(IndexError, KafkaError):
            _learn(body, count)


def _learn(body: bytes, count: int) -> None:
    first = min(count, DELTAS_OF_ONE_BYTE)
    later = min(count, DELTAS_OF_TWO_BYTES) - first
    size_bytes = _size_bytes(body, 0)
    later_start = first * size_bytes
    if later_start > len(body) or (later and later_start == len(body)):
        return
    later_bytes = _size_bytes(body, later_start) if later else 0
    if count > DELTAS_OF_TWO_BYTES or later_start + later * later_bytes != len(body):
        return
    runs = [_run(body, 0, size_bytes, first, (bytes(range(0, 2 * first, 2)),))]
    if later:
        runs.append(_run(body, later_start, later_bytes, later, (LOW_BYTES[:later], HIGH_BYTES[:later])))
    plan = _Plan(*(tuple(chain.from_iterable(parts)) for parts in zip(*runs, strict=True)))
    if all(run.columns for run in runs) and plan.fits(memoryview(body)):
        if len(plans) >= _MAX_PLANS:
            plans.clear()
        plans[len(body), count] = plan


def _size_bytes(body: bytes, start: int) -> int:
    raw, end = varint(body, start)
    return end - start + (raw >> 1)


def _run(body: bytes, start: int, size_bytes: int, count: int, deltas: tuple[bytes, ...]) -> _Plan:
    """The plan of so many records of one size; without columns if they have headers, or other deltas."""
    record = body[start : start + size_bytes]

    def column(at: int) -> slice:
        return slice(start + at, start + at + (count - 1) * size_bytes + 1, size_bytes)

    _raw, position = varint(record, 0)
    fixed = [*range(position)]
    timestamp = position + 1
    while record[timestamp] > 0x7F:
        timestamp += 1
    _delta, end = varint(record, timestamp + 1)
    delta_places = range(timestamp + 1, end)
    for _ in _KEY_AND_VALUE:
        length, content = varint(record, end)
        fixed.extend(range(end, content))
        end = content + (0 if length & 1 else length >> 1)
    fixed.append(end)
    if record[end] or len(delta_places) != len(deltas):
        return _Plan((), (), ())
    columns = [(column(at), record[at : at + 1] * count) for at in fixed]
    columns.extend((column(at), values) for at, values in zip(delta_places, deltas, strict=True))
    beginnings = tuple(column(at) for at in range(position + 1, timestamp))
    return _Plan(tuple(columns), (column(timestamp),), beginnings)
