"""Tests of MemoryPool: no claim waits for ever, the limit holds, and a silent client delays only itself."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.network.memory_pool import Claim, MemoryPool
from klamm.network.receive import InvalidReceiveError, NetworkReceive
from klamm.testing import ManualClock

KIB = 1024


class Peer:
    """A client that sends one request after the other, as far as possible. After `stalls_at` bytes it is silent."""

    def __init__(self, pool, sizes, stalls_at=None):
        self.receive = NetworkReceive(1 << 30, pool)
        self.data = b"".join(struct.pack(">i", size) + bytes(size) for size in sizes)[:stalls_at]
        self.sent = 0
        self.left = len(sizes)
        self.closed = False
        self.shared = memoryview(bytearray(16 * KIB))

    @property
    def wants_to_send(self):
        return not self.closed and self.sent < len(self.data)

    def read(self, most_bytes):
        """Read from a channel, as a selector does."""
        receive = self.receive
        if receive.evicted:
            self.close()
            return
        if receive.waiting_for_memory and not receive.resume():
            return
        limit = receive.reserve()
        if not limit:
            return
        piece = self.data[self.sent : self.sent + min(limit, most_bytes, len(self.shared))]
        direct = receive.direct_buffer(8 * KIB)
        if direct is not None:
            piece = piece[: len(direct)]
            direct[: len(piece)] = piece
            receive.filled(len(piece))
        else:
            self.shared[: len(piece)] = piece
            receive.feed(self.shared, len(piece))
        self.sent += len(piece)

    def answer(self):
        while self.receive.frames:
            self.receive.release(len(self.receive.frames.popleft()))
            self.left -= 1

    def close(self):
        self.receive.discard()
        self.closed = True


def run(pool, clock, peers, choose, most_bytes=6 * KIB, answer_every=1):
    """Take turns until no client has bytes to send, or nothing changes for long. Return the highest use."""
    highest = 0
    still = 0
    for turn in range(100_000):
        busy = [peer for peer in peers if peer.wants_to_send or peer.receive.waiting_for_memory]
        if not busy or still > 2000:
            return highest
        before = [(peer.sent, peer.left, peer.closed) for peer in peers]
        for peer in choose(busy):
            peer.read(most_bytes)
            highest = max(highest, pool.used_bytes)
        for peer in peers:
            if peer.receive.evicted and not peer.closed:
                peer.close()
        if turn % answer_every == 0:
            for peer in peers:
                peer.answer()
        clock.advance_ms(5)
        still = still + 1 if before == [(peer.sent, peer.left, peer.closed) for peer in peers] else 0
    raise AssertionError("it goes on and on")


sizes = st.lists(st.integers(0, 60 * KIB), min_size=1, max_size=3)


@given(
    requests=st.lists(sizes, min_size=1, max_size=8),
    pool_bytes=st.integers(1, 200 * KIB),
    answer_every=st.integers(1, 20),
    seed=st.integers(),
)
def test_many_clients_that_send_at_once_are_all_answered(requests, pool_bytes, answer_every, seed):
    clock, order = ManualClock(), random.Random(seed)
    pool = MemoryPool(pool_bytes, clock=clock)
    peers = [Peer(pool, own) for own in requests]
    highest = run(pool, clock, peers, lambda busy: order.sample(busy, len(busy)), answer_every=answer_every)
    for peer in peers:
        peer.answer()
    assert [peer.left for peer in peers] == [0] * len(peers)
    assert pool.used_bytes == 0
    largest = max(map(max, requests))
    assert highest <= (pool_bytes if largest <= pool_bytes // 2 else pool_bytes + largest)


@given(
    honest=st.lists(sizes, min_size=1, max_size=4),
    silent=st.lists(st.tuples(st.integers(1, 60 * KIB), st.floats(0.0, 0.99)), max_size=6),
    pool_bytes=st.integers(16 * KIB, 200 * KIB),
    seed=st.integers(),
)
def test_silent_peers_delay_no_other_client(honest, silent, pool_bytes, seed):
    clock, order = ManualClock(), random.Random(seed)
    pool = MemoryPool(pool_bytes, clock=clock)
    peers = [Peer(pool, own) for own in honest]
    everybody = [*peers, *(Peer(pool, [size], 4 + int(size * part)) for size, part in silent)]
    highest = run(pool, clock, everybody, lambda busy: order.sample(busy, len(busy)))
    for peer in everybody:
        peer.answer()
    assert [peer.left for peer in peers] == [0] * len(peers)
    assert not any(peer.closed for peer in peers)
    assert highest <= pool_bytes + 60 * KIB
    for peer in everybody:
        if not peer.closed:
            peer.close()
    assert pool.used_bytes == 0


def test_a_client_that_sends_single_bytes_loses_its_turn():
    clock = ManualClock()
    pool = MemoryPool(100 * KIB, clock=clock)
    trickling, waiting = Peer(pool, [60 * KIB]), Peer(pool, [60 * KIB])
    while trickling.sent < 52 * KIB:
        trickling.read(1 * KIB)
    for _ in range(100):
        trickling.read(1)
        waiting.read(16 * KIB)
        if trickling.receive.evicted:
            trickling.close()
        clock.advance_ms(10)
    waiting.answer()
    assert waiting.left == 0
    assert trickling.left == 1


def test_a_strict_pool_refuses_requests_larger_than_half_of_it():
    pool = MemoryPool(100 * KIB, strict=True)
    with pytest.raises(InvalidReceiveError, match="queued.max.request.bytes"):
        Peer(pool, [51 * KIB]).read(10)
    fits = Peer(pool, [50 * KIB])
    while fits.wants_to_send:
        fits.read(16 * KIB)
    fits.answer()
    assert fits.left == 0


def test_a_declared_size_takes_no_memory():
    pool = MemoryPool(100 * KIB)
    receive = NetworkReceive(1 << 30, pool)
    receive.feed(memoryview(struct.pack(">i", 90_000_000) + b"1234"), 8)
    assert pool.used_bytes == 4


@pytest.mark.parametrize("at_once", [4 * KIB, 16 * KIB])
def test_a_request_that_was_sent_whole_does_not_wait_for_silent_peers(at_once):
    pool = MemoryPool(100 * KIB)
    silent = [Peer(pool, [20 * KIB], stalls_at=10 * KIB) for _ in range(10)]
    for _ in range(20):
        for peer in silent:
            peer.read(16 * KIB)
    assert pool.is_low
    whole = Peer(pool, [30 * KIB])
    whole.receive.bytes_at_hand = lambda: len(whole.data) - whole.sent
    for _ in range(30 * KIB // at_once + 2):
        whole.read(at_once)
    assert len(whole.receive.frames) == 1
    whole.answer()
    for peer in silent:
        peer.close()
    whole.close()
    assert pool.used_bytes == 0


def test_incomplete_requests_do_not_get_the_half_for_complete_ones():
    pool = MemoryPool(100 * KIB)
    for _ in range(40):
        peer = Peer(pool, [20 * KIB], stalls_at=10 * KIB)
        peer.receive.bytes_at_hand = lambda peer=peer: len(peer.data) - peer.sent
        for _ in range(20):
            peer.read(16 * KIB)
    assert pool.used_bytes <= 50 * KIB + 10 * KIB


def test_depletion_is_timed_from_the_first_refusal_to_the_next_release():
    clock = ManualClock()
    pool = MemoryPool(10, clock=clock)
    assert pool.try_allocate(8)
    clock.advance_ms(100)
    assert pool.depleted_ns == 0
    assert not pool.allocate_whole(Claim(), 8)
    clock.advance_ms(30)
    assert pool.depleted_ns == 30_000_000
    pool.release(8)
    clock.advance_ms(50)
    assert pool.depleted_ns == 30_000_000
    assert pool.depletions == 1
