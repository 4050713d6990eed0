"""Tests of NetworkSend: buffers and file regions are sent completely and in order, in any portions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.api.transport import Interest, TransportLayer
from klamm.network.send import NetworkSend
from klamm.wire.chunks import flatten_small


class TricklingTransport(TransportLayer):
    """A transport that accepts the given numbers of bytes, call by call, and then everything."""

    def __init__(self, allowances):
        self._allowances = iter(allowances)
        self.taken = b""

    def handshake(self):
        return Interest.NONE

    def read_into(self, buffer):
        return 0

    def _take(self, data):
        data = data[: next(self._allowances, len(data))]
        self.taken += data
        return len(data)

    def write(self, chunks, more=False):
        assert chunks
        return self._take(b"".join(chunks))

    def send_file(self, descriptor, position, count):
        return self._take(FILES[descriptor][position : position + count])

    def close(self):
        pass


FILES = {7: bytes(range(256)) * 9000}


class Region:
    def __init__(self, position, size_bytes):
        self.position = position
        self.size_bytes = size_bytes
        self.closed = 0

    def fileno(self):
        return 7

    def read(self, position, size_bytes):
        return FILES[7][position : position + size_bytes]

    def read_into(self, position, buffer):
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self):
        self.closed += 1


chunk = st.binary(min_size=1, max_size=20) | st.builds(Region, st.integers(0, 1000), st.integers(1, 2_000_000))


def content(chunk):
    return chunk if isinstance(chunk, bytes) else FILES[7][chunk.position : chunk.position + chunk.size_bytes]


@given(
    chunks=st.lists(chunk, min_size=1, max_size=5),
    allowances=st.lists(st.integers(0, 50_000), max_size=30),
    use_send_file=st.booleans(),
)
def test_everything_is_sent_in_order_and_files_are_closed_once(chunks, allowances, use_send_file):
    transport = TricklingTransport(allowances)
    send = NetworkSend(chunks, None if use_send_file else memoryview(bytearray(5000)))
    for _ in range(len(allowances) + 4000):
        if send.write_to(transport):
            break
    assert transport.taken == b"".join(map(content, chunks))
    assert send.size_bytes == len(transport.taken)
    assert all(c.closed == 1 for c in chunks if isinstance(c, Region))


def test_close_closes_files_that_were_not_sent():
    regions = [Region(0, 10), Region(0, 10)]
    send = NetworkSend([b"x", *regions], None)
    assert not send.write_to(TricklingTransport([1, 4, 0]))
    send.close()
    assert [region.closed for region in regions] == [1, 1]


def test_small_regions_are_read_into_memory():
    small, large = Region(3, 100), Region(0, 1_000_000)
    assert flatten_small([b"a", small, large]) == [b"a", FILES[7][3:103], large]
    assert (small.closed, large.closed) == (1, 0)


@pytest.mark.parametrize("scratch", [None, memoryview(bytearray(64 * 1024))])
def test_a_fast_client_gets_256_kib_of_files_in_a_turn(scratch):
    transport, send = TricklingTransport([]), NetworkSend([b"head", Region(0, 600 * 1024), b"tail"], scratch)
    turns = []
    while True:
        before = len(transport.taken)
        whole = send.write_to(transport)
        turns.append(len(transport.taken) - before)
        if whole:
            break
    assert turns == [256 * 1024 + 4, 256 * 1024, 88 * 1024 + 4]
