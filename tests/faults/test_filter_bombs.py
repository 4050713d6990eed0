"""Compressed bombs for every registered filter, alone and stacked, in front of a broker and a gateway.

Each bomb is refused as without filters, and takes at most a few times the processor time.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from klamm.testing import RawClient
from klamm.wire.compression import Codec, compress
from klamm.wire.records import Record, encode_batch
from tests.contract.filter_settings import alone_and_stacked, settings_of
from tests.contract.filtered import API_SETS, served
from tests.contract.test_record_filters import batch, produce
from tests.faults.cost_meter import MEMORY_BUDGET_BYTES, calibration_loop
from tests.faults.test_bombs import MIB, SMALL_UNPACKED_BYTES, bomb
from tests.unit.log.test_record_check import with_body, with_header

TOPIC = "t"
TOPIC_CONFIGS = {"max.message.bytes": 16 * MIB}
"""The allowed size is large, so that a batch is refused because of its unpacked size, not because of its own size."""
EMPTY_RECORD = b"\x0c\0\0\0\1\1\0"
MANY_RECORDS = 2_000_000
MORE_THAN_A_BATCH_MAY_HAVE_BYTES = 130 * MIB
KINDS = ("count", "size", "ratio")
"""Batches with too many records, with too many unpacked bytes, and with many times the bytes of a small frame."""
IN_CI = [
    (Codec.NONE, "count"),
    (Codec.ZSTD, "count"),
    (Codec.LZ4, "size"),
    (Codec.GZIP, "ratio"),
    (Codec.ZSTD, "ratio"),
]
EVERY = [(codec, kind) for codec in Codec for kind in KINDS if codec is not Codec.NONE or kind == "count"]
MOST_TIMES = 6.0
"""Number of times that a batch is unpacked: by `record_validation`, by `record_encryption`, and by the broker."""


@cache
def bomb_of(codec: Codec, kind: str) -> bytes:
    if kind == "count":
        packed = compress(codec, EMPTY_RECORD * (MANY_RECORDS if codec is not Codec.NONE else 1))
        made = with_body(encode_batch([Record(value=b"x")], codec=codec), packed)
        return bytes(with_header(made, records_count=MANY_RECORDS))
    return bomb(codec, MORE_THAN_A_BATCH_MAY_HAVE_BYTES if kind == "size" else SMALL_UNPACKED_BYTES[codec])


def refused(client: RawClient, made: bytes) -> tuple[int, float]:
    """Send a request. Return the error code, and the processor time of the whole process in milliseconds."""
    started = time.process_time_ns()
    (partition,) = produce(client, TOPIC, made)
    return partition.error_code, (time.process_time_ns() - started) / 1e6


def least_ms(client: RawClient, made: bytes, rounds: int = 2) -> float:
    return min(refused(client, made)[1] for _ in range(rounds))


def noise_ms() -> float:
    """Return the time that a very cheap request may take, because of thread switches and other work of the server."""
    started = time.process_time_ns()
    calibration_loop()
    return 3 * (time.process_time_ns() - started) / 1e6


def peak_bytes(client: RawClient, made: bytes) -> int:
    tracemalloc.start()
    try:
        refused(client, made)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module", params=API_SETS)
def plain(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    """Return a handler set, and a client of a server with this handler set and no filters."""
    with served(request.param, []) as (_broker, front), RawClient(front.address(), timeout_s=60) as client:
        front.admin.create_topic(TOPIC, configs=TOPIC_CONFIGS)
        yield request.param, client


@pytest.mark.parametrize(
    ("names", "bombs"),
    [
        (alone_and_stacked()[-1], IN_CI),
        *(pytest.param(names, EVERY, marks=pytest.mark.slow) for names in alone_and_stacked()),
    ],
    ids=lambda value: "-".join(value) if isinstance(value[0], str) else f"{len(value)}_bombs",
)
def test_bombs_are_refused_as_without_filters(
    plain: tuple[str, RawClient], names: tuple[str, ...], bombs: list[tuple[Codec, str]], tmp_path: Path
) -> None:
    api_set, without = plain
    with (
        served(api_set, settings_of(names, tmp_path)) as (_broker, front),
        RawClient(front.address(), timeout_s=60) as client,
    ):
        front.admin.create_topic(TOPIC, configs=TOPIC_CONFIGS)
        assert produce(client, TOPIC, batch((b"k", b"v")))[0].error_code == 0
        floor_ms = noise_ms()
        for codec, kind in bombs:
            made, what = bomb_of(codec, kind), f"{kind} {codec.name}"
            expected, _ms = refused(without, made)
            assert expected != 0
            assert refused(client, made)[0] == expected, what
            assert least_ms(client, made) < MOST_TIMES * least_ms(without, made) + floor_ms, what
            assert peak_bytes(client, made) < MEMORY_BUDGET_BYTES, what
        assert front.admin.offset(TOPIC) == 1
