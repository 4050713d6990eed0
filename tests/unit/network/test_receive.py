"""Tests of NetworkReceive: frames are independent of how bytes arrive, and a declared size takes no memory."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.network.memory_pool import MemoryPool
from klamm.network.receive import InvalidReceiveError, NetworkReceive
from klamm.requests.limits import request_limits
from klamm.wire.api_keys import ApiKey

MAX = 200_000


def framed(bodies):
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def feed_in_pieces(receive, data, cuts, direct_from):
    """Pass bytes as the selector does: to the frame's own buffer if many are missing, else through a shared buffer."""
    shared = memoryview(bytearray(len(data)))
    position = 0
    for cut in [*sorted(cuts), len(data)]:
        while position < cut:
            direct = receive.direct_buffer(direct_from)
            if direct is not None:
                count = min(len(direct), cut - position)
                direct[:count] = data[position : position + count]
                receive.filled(count)
            else:
                count = cut - position
                shared[:count] = data[position:cut]
                receive.feed(shared, count)
            position += count


@given(
    bodies=st.lists(st.binary(max_size=300) | st.integers(65_530, 70_001).map(random.Random(1).randbytes), max_size=8),
    cuts=st.lists(st.integers(0, 3000), max_size=12),
    direct_from=st.sampled_from([1, 64, 65536]),
)
def test_frames_do_not_depend_on_how_bytes_arrive(bodies, cuts, direct_from):
    receive = NetworkReceive(MAX)
    data = framed(bodies)
    feed_in_pieces(receive, data, [min(cut, len(data)) for cut in cuts], direct_from)
    assert [bytes(frame) for frame in receive.frames] == bodies
    assert receive.idle


@pytest.mark.parametrize("size", [-1, -(2**31), MAX + 1, 2**31 - 1])
def test_impossible_sizes_are_refused_before_memory_is_taken(size):
    pool = MemoryPool(1000)
    receive = NetworkReceive(MAX, pool)
    with pytest.raises(InvalidReceiveError, match=str(size)):
        receive.feed(memoryview(struct.pack(">i", size)), 4)
    assert pool.available_bytes == 1000


def test_frames_are_writable_and_outlive_the_shared_buffer():
    receive = NetworkReceive(MAX)
    shared = bytearray(framed([b"abc"]))
    receive.feed(memoryview(shared), len(shared))
    shared[:] = bytes(len(shared))
    frame = receive.frames.popleft()
    frame[0:1] = b"X"
    assert bytes(frame) == b"Xbc"


def test_an_empty_pool_stops_reading_until_memory_is_back():
    pool = MemoryPool(10)
    receive = NetworkReceive(MAX, pool)
    data = framed([b"12345678", b"abcdef", b"z"])
    receive.feed(memoryview(data), len(data))
    assert [bytes(f) for f in receive.frames] == [b"12345678"]
    assert receive.waiting_for_memory
    assert not receive.resume()
    assert pool.depletions == len(pool.waiting_since_ns) == 1, "it has asked twice"
    receive.release(len(receive.frames.popleft()))
    assert receive.resume()
    assert [bytes(f) for f in receive.frames] == [b"abcdef", b"z"]
    assert pool.used_bytes == 7
    assert not pool.waiting_since_ns


def test_a_request_larger_than_the_pool_passes_alone():
    pool = MemoryPool(10)
    receive = NetworkReceive(MAX, pool)
    data = framed([b"x" * 100])
    receive.feed(memoryview(data), len(data))
    assert len(receive.frames) == 1
    assert not pool.try_allocate(1)


def test_discard_releases_all_memory():
    pool = MemoryPool(100)
    receive = NetworkReceive(MAX, pool)
    data = framed([b"12345678"]) + struct.pack(">i", 50) + b"half"
    receive.feed(memoryview(data), len(data))
    assert pool.used_bytes == 12
    receive.discard()
    assert pool.used_bytes == 0


def large(api_key, size):
    return struct.pack(">ih", size, api_key) + bytes(10)


def test_each_api_has_its_own_largest_frame():
    limits = request_limits(socket_max_bytes=10 << 20, max_bytes={"Metadata": 70_000})
    for api_key, size in ((ApiKey.PRODUCE, 10 << 20), (ApiKey.METADATA, 70_000), (ApiKey.HEARTBEAT, 4 << 20)):
        receive = NetworkReceive(100 << 20)
        receive.limits = limits
        receive.feed(memoryview(large(api_key, size)), 16)
        assert receive.target is not None, "it is on its way"
        receive = NetworkReceive(100 << 20)
        receive.limits = limits
        with pytest.raises(InvalidReceiveError, match=f"{size + 1} bytes of .*request_max_bytes") as caught:
            receive.feed(memoryview(large(api_key, size + 1)), 16)
        assert caught.value.reason == "request_too_large"
        assert receive.target is None, "no memory is taken for it"
    assert limits.counts.counters["request_bytes"].value == 3


@pytest.mark.parametrize("api_key", [-1, -32768, 127, 128, 32767])
def test_a_key_that_no_api_has_gets_the_default(api_key):
    receive = NetworkReceive(100 << 20)
    receive.limits = request_limits()
    with pytest.raises(InvalidReceiveError, match=f"key {api_key}, which may have 4194304"):
        receive.feed(memoryview(large(api_key, 5 << 20)), 16)


@pytest.mark.parametrize("cut", range(6))
def test_the_limit_holds_however_the_first_bytes_are_divided(cut):
    receive = NetworkReceive(100 << 20)
    receive.limits = request_limits(max_bytes={"Heartbeat": 99_999})
    data = memoryview(large(ApiKey.HEARTBEAT, 100_000))
    if cut:
        receive.feed(data[:cut], cut)
    with pytest.raises(InvalidReceiveError, match="of Heartbeat"):
        receive.feed(data[cut:], 16 - cut)


@given(cuts=st.lists(st.integers(0, 200_000), max_size=6))
def test_large_frames_within_the_limit_are_complete_however_they_are_divided(cuts):
    body = struct.pack(">h", ApiKey.METADATA) + random.Random(2).randbytes(90_000)
    receive = NetworkReceive(MAX)
    receive.limits = request_limits()
    data = framed([body, b"x", body])
    feed_in_pieces(receive, data, [min(cut, len(data)) for cut in cuts], 64)
    assert [bytes(frame) for frame in receive.frames] == [body, b"x", body]
