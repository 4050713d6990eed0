"""Tests that shared threads do no long work for a share group."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from klamm.wire.records import RecordBatchHeader
from klamm_broker.share import log_batches
from tests.unit.broker.test_configs import GROUP, alter
from tests.unit.share.test_share_fetch import ACCEPT, RELEASE, Shares, acquired


def test_a_fetch_reads_no_batch_after_the_records_in_flight(shares: Shares, monkeypatch: pytest.MonkeyPatch) -> None:
    assert alter(shares.harness, GROUP, "g", ("share.partition.max.record.locks", 0, "100")) == 0
    for _ in range(250):
        shares.produce(b"x")
    looked_at: list[int] = []
    unpack = log_batches.unpack_header

    def noted(data: bytes, at: int) -> Any:
        header = unpack(data, at)
        looked_at.append(RecordBatchHeader._make(header).base_offset)
        return header

    monkeypatch.setattr(log_batches, "unpack_header", noted)
    assert shares.acquired("a", 0) == [(0, 99, 1)]
    assert max(looked_at) == 100
    epochs = itertools.count(1)

    def next_acquired(*acknowledged: Any) -> Any:
        # The fetch may be read before the acknowledgements of its request are durable.
        return shares.acquired("a", next(epochs), *acknowledged) or shares.acquired("a", next(epochs))

    looked_at.clear()
    assert next_acquired((0, 59, [ACCEPT]), (60, 99, [RELEASE])) == [(60, 99, 2), (100, 159, 1)]
    assert max(looked_at) == 160
    assert next_acquired((60, 159, [ACCEPT])) == [(160, 249, 1)]


class HeldWork:
    """Work for another thread, held until the test runs it."""

    def __init__(self) -> None:
        self.held: list[Callable[[], object]] = []

    def submit(self, work: Callable[[], object], source: str = "") -> None:
        self.held.append(work)

    def run(self) -> None:
        while self.held:
            self.held.pop(0)()

    def close(self) -> None:
        """Do nothing, because there is no thread."""


def test_a_network_thread_does_not_wait_for_locks_of_a_closed_connection(shares: Shares) -> None:
    """The lock of a partition is held while its log is read."""
    shares.produce(b"0")
    shares.harness.broker.long_work = work = HeldWork()  # type: ignore[assignment]
    reply = shares.send_fetch("a", 0)
    assert acquired(reply.response) == [(0, 0, 1)]
    (live,) = shares.harness.broker.shares.of_group("g")
    connection = shares.harness.context(reply, 78, 2).connection
    closing = threading.Thread(target=shares.harness.broker.connection_closed, args=(connection,))
    with live._lock:
        closing.start()
        closing.join(60)
        assert not closing.is_alive()
    assert shares.acquired("b", 0) == []
    work.run()
    shares.settle()
    assert shares.acquired("b", 1) == [(0, 0, 2)]


@pytest.mark.parametrize("closes_twice", [False, True])
def test_a_late_release_does_not_affect_the_members_next_session(shares: Shares, closes_twice: bool) -> None:
    shares.produce(b"0")
    broker = shares.harness.broker
    broker.long_work = work = HeldWork()  # type: ignore[assignment]
    reply = shares.send_fetch("a", 0)
    broker.connection_closed(shares.harness.context(reply, 78, 2).connection)
    waiting = shares.send_fetch("a", 0, wait_ms=10_000)
    shares.settle()
    assert acquired(waiting.response) == [(0, 0, 2)], "the next session's first request releases it"
    first_release = work.held.pop()
    if closes_twice:
        broker.connection_closed(shares.harness.context(reply, 78, 2).connection)
    first_release()
    shares.settle()
    assert shares.acquired("b", 0) == []
    work.run()
    shares.settle()
    assert shares.acquired("b", 1) == ([(0, 0, 3)] if closes_twice else [])
