"""Exchanges of one connection through a gateway, cut into random pieces on both sides, with a size that lies.

Small and large, looked at and opaque, up to six at once. What precedes the lie arrives byte for byte, at the node and
at the client. Each example is made from its number; `-m slow` tries thousands.
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
WITHIN_S = 5
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
    """What a client sends, what its node answers, and where a size is wrong: `liar` is None, "client" or "node".

    `seen` are the requests that the node got, `answered` says how many of those it has answered.
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
        """Return how many exchanges come before the lie."""
        return self.index if self.liar else len(self.frames)

    def sent_by_client(self):
        return b"".join(sized(each, self._delta("client", at)) for at, each in enumerate(self.frames))

    def sent_by_node(self):
        return [sized(each[4:], self._delta("node", at)) for at, each in enumerate(self.answers)]

    def _delta(self, side, at):
        return self.delta if (self.liar, self.index) == (side, at) else 0


def pieces(data, rng):
    """The data in up to `MOST_PIECES` pieces, none of which is empty."""
    at = sorted({rng.randrange(len(data)) for _ in range(rng.randint(0, MOST_PIECES))} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(at)]


class Answering:
    """A node that answers the requests of each example in order, a random number of them at a time."""

    def __init__(self):
        self.expected = {}
        self.count = 0

    def __call__(self, node, sock, frame):
        self.count += 1
        example, rng = self.expected.get(decode_request_header(frame)[2] // IDS, (None, None))
        if example is None:
            # What follows a client's lie may come late.
            return
        example.seen.append(frame)
        count, most = len(example.seen), len(example.answers)
        # Behind a client's lie fewer requests may follow than it has sent.
        if count > most or (example.liar != "client" and count < most and rng.random() < 0.5):
            return
        for piece in pieces(b"".join(example.sent_by_node()[example.answered : count]), rng):
            sock.sendall(piece)
        example.answered = count
        if example.liar == "node" and count == most:
            sock.shutdown(socket.SHUT_RDWR)

    def expect(self, number):
        """Requests of this example come, and no others."""
        example = Example.numbered(number)
        self.expected = {number: (example, random.Random(number))}
        return example


def exchange(front, example, rng):
    """All bytes that the client of an example gets, and whether its connection was reset.

    A system resets one that is closed with unread bytes, and may lose answers by that: with Kafka, too.
    """
    wanted = sum(map(len, example.answers[: example.intact]))
    got = bytearray()
    with RawClient(front.address(), timeout_s=WITHIN_S) as client, contextlib.suppress(ConnectionError):
        for piece in pieces(example.sent_by_client(), rng):
            client.send_bytes(piece)
        # A client's lie may claim bytes that never come, and a node's may leave bytes that no client waits for.
        while len(got) < wanted or (example.liar == "node" and len(whole_frames(got)) < len(example.frames)):
            data = client.socket.recv(1 << 20)
            if not data:
                break
            got += data
        return bytes(got), False
    return bytes(got), True


def check(front, serve, numbers):
    """Check the exchanges of these examples; return how many requests had no liar."""
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
    """The frames in these bytes, without their sizes; the last may not have come whole."""
    frames = []
    while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
        frames.append(data[4:end])
        data = data[end:]
    return frames


@pytest.mark.parametrize("looked_at", [True, False], ids=["looked at", "opaque"])
@pytest.mark.parametrize(
    "numbers", [range(150), pytest.param(range(150, 6000), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_bytes_before_a_false_length_arrive(audited, numbers, looked_at):
    serve = Answering()
    with FakeNode(serve) as node:
        front = (audited(node) if looked_at else gateway(node.bootstrap)).start()
        honest = check(front, serve, numbers)
        front.stop()
    if looked_at:
        events = [one for api in ("Heartbeat", "Fetch", "Produce") for one in requests_in(audited.spool, api)]
        assert len(events) >= serve.count, "every request that the node has got"
        assert sum(one["outcome"] == "ok" for one in events) >= honest
