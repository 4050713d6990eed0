"""Tests of a gateway that gets messages in random pieces. One of the messages has a wrong size.

An example is a connection with up to six exchanges, small and large, some read by the gateway and some not. A client or
the node declares a wrong size in one message. All bytes before this message must arrive unchanged. Each example is made
from its number; `-m slow` tries thousands.
"""

import contextlib
import random
import socket
import struct
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from klamm.testing import RawClient
from klamm.wire.headers import decode_request_header, encode_request_header
from klamm.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import Record, encode_batch
from tests.contract.gateway_nodes import FakeNode, gateway, response
from tests.contract.test_gateway_cuts import (
    BATCH,
    FETCH_VERSION,
    PRODUCE_VERSION,
    audited,
    fetch_frame,
    fetched,
    produced,
    requests_in,
)

__all__ = ["audited"]

SMALL_BATCH = bytes(encode_batch([Record(0, 1000, None, bytes(100), ())]))
WITHIN_S = 60
MOST_PIECES = 12
IDS = 100
DELTAS = (-100_000, -4, -1, 1, 4, 100_000)


def heartbeat(number):
    frame = encode_request_header(12, 4, number, "c") + HeartbeatRequest("group").encode(4)
    return frame, response(number, 12, 4, HeartbeatResponse(number, 0).encode(4))


def fetch(records):
    return lambda number: (fetch_frame(number), response(number, 1, FETCH_VERSION, fetched(records)))


def produce(records):
    def make(number):
        data = [TopicProduceData("topic", partition_data=[PartitionProduceData(0, records)])]
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=data)
        frame = encode_request_header(0, PRODUCE_VERSION, number, "c") + request.encode(PRODUCE_VERSION)
        return frame, produced(number, base_offset=number)

    return make


KINDS = (heartbeat, fetch(SMALL_BATCH), fetch(BATCH), produce(SMALL_BATCH), produce(BATCH))


def sized(frame, delta=0):
    return struct.pack(">i", max(0, len(frame) + delta)) + frame


@dataclass
class Example:
    """What a client sends, what its node answers, and which message has a wrong size.

    `liar` is "client", "node", or None if all sizes are right. `seen` are the requests that the node got, and
    `answered` is how many of them it has answered.
    """

    frames: list
    answers: list
    liar: str | None
    index: int
    delta: int
    seen: list = field(default_factory=list)
    answered: int = 0

    @classmethod
    def numbered(cls, number):
        rng = random.Random(number)
        pairs = [rng.choice(KINDS)(number * IDS + at) for at in range(rng.randint(1, 6))]
        frames, answers = (list(each) for each in zip(*pairs, strict=True))
        liar = rng.choice((None, "client", "node"))
        return cls(frames, answers, liar, rng.randrange(len(pairs)), rng.choice(DELTAS))

    @property
    def intact(self):
        """Return how many exchanges come before the wrong size."""
        return self.index if self.liar else len(self.frames)

    def sent_by_client(self):
        return b"".join(sized(each, self._delta("client", at)) for at, each in enumerate(self.frames))

    def sent_by_node(self):
        return [sized(each[4:], self._delta("node", at)) for at, each in enumerate(self.answers)]

    def _delta(self, side, at):
        return self.delta if (self.liar, self.index) == (side, at) else 0


def pieces(data, rng):
    """Return the data in up to `MOST_PIECES` pieces, none of which is empty."""
    at = sorted({rng.randrange(len(data)) for _ in range(rng.randint(0, MOST_PIECES))} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(at)]


class Answering:
    """A node that answers the requests of an example in order, a random number of them at a time."""

    def __init__(self):
        self.expected = {}
        self.count = 0

    def __call__(self, node, sock, frame):
        self.count += 1
        example, rng = self.expected.get(decode_request_header(frame)[2] // IDS, (None, None))
        if example is None:
            # The node may get bytes that a client sent after its wrong size while the next example runs.
            return
        example.seen.append(frame)
        count, most = len(example.seen), len(example.answers)
        # After a client's wrong size the node may get fewer requests than the client has sent.
        if count > most or (example.liar != "client" and count < most and rng.random() < 0.5):
            return
        for piece in pieces(b"".join(example.sent_by_node()[example.answered : count]), rng):
            sock.sendall(piece)
        example.answered = count
        if example.liar == "node" and count == most:
            sock.shutdown(socket.SHUT_RDWR)

    def expect(self, number):
        """Answer the requests of this example from now on. Return the example."""
        example = Example.numbered(number)
        self.expected = {number: (example, random.Random(number))}
        return example


def exchange(front, example, rng):
    """Return all bytes that the client of an example gets, and True if its connection was reset.

    The system resets a connection that is closed with unread bytes, and responses may be lost then, also with Kafka.
    """
    wanted = sum(map(len, example.answers[: example.intact]))
    got = bytearray()
    with RawClient(front.address(), timeout_s=WITHIN_S) as client, contextlib.suppress(ConnectionError):
        for piece in pieces(example.sent_by_client(), rng):
            client.send_bytes(piece)
        # A client's wrong size may announce bytes that never come. A node's may leave bytes for which no client waits.
        while len(got) < wanted or (example.liar == "node" and len(whole_frames(got)) < len(example.frames)):
            data = client.socket.recv(1 << 20)
            if not data:
                break
            got += data
        return bytes(got), False
    return bytes(got), True


def check(front, serve, numbers):
    """Check the exchanges of these examples. Return how many requests were in examples without a wrong size."""
    honest = 0
    for number in numbers:
        example = serve.expect(number)
        got, is_reset = exchange(front, example, random.Random(number))
        wanted = b"".join(example.answers[: example.intact])
        which = number, example.liar, example.index, example.delta
        assert not (is_reset and example.liar is None), which
        assert got[: len(wanted)] == (wanted[: len(got)] if is_reset else wanted), which
        assert example.seen[: example.intact] == example.frames[: example.intact], which
        ids = [int.from_bytes(frame[:4], "big") for frame in whole_frames(got)]
        assert ids == [number * IDS + at for at in range(len(ids))], which
        honest += len(example.frames) if example.liar is None else 0
    return honest


def whole_frames(data):
    """Return the frames in these bytes, without their sizes. An incomplete last frame is left out."""
    frames = []
    while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
        frames.append(data[4:end])
        data = data[end:]
    return frames


@pytest.mark.parametrize("looked_at", [True, False], ids=["looked at", "opaque"])
@pytest.mark.parametrize(
    "numbers", [range(150), pytest.param(range(150, 6000), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_all_bytes_before_a_wrong_size_arrive(audited, numbers, looked_at):
    serve = Answering()
    with FakeNode(serve) as node:
        front = (audited(node) if looked_at else gateway(node.bootstrap)).start()
        honest = check(front, serve, numbers)
        front.stop()
    if looked_at:
        events = [one for api in ("Heartbeat", "Fetch", "Produce") for one in requests_in(audited.spool, api)]
        assert len(events) >= serve.count, "every request that the node has got"
        assert sum(one["outcome"] == "ok" for one in events) >= honest
