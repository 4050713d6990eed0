"""docs/a-request.md shows the real way of two requests: files, functions, their order and their threads."""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from klamm.requests.limits import INLINE_MAX_BYTES
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.chunks import COPY_UP_TO_BYTES
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import Record, encode_batch
from tests.waiting import wait_until

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "a-request.md").read_text(encoding="utf-8")
THREADS = {"klamm-processor-default-0": "P", "klamm-scheduler": "S"}
TOPIC = "way"
# The end of a request that is not timed is another function of `RequestLedger`.
TIMED = ["listeners.default.slow_log={default = 600000}"]
NO_ID = bytes(16)


class Hop(NamedTuple):
    """A step of the page: the thread, the file and the called function."""

    thread: str
    path: Path
    function: str


def hops(text: str) -> list[Hop]:
    rows = re.findall(r"^\| \d+ \| (\w) \| \[(\S+)\]\((\S+)\) `([\w.]+)` \|", text, re.MULTILINE)
    assert all(Path(path).name == name for _thread, name, path, _function in rows)
    return [Hop(thread, (DOCS / path).resolve(), function) for thread, _name, path, function in rows]


PRODUCE_TEXT, FETCH_TEXT = PAGE.split("## A Fetch")
PRODUCE, FETCH = hops(PRODUCE_TEXT), hops(FETCH_TEXT)
COMMON = PRODUCE[:6]
COMPLETED_BY = dict(re.findall(r"^\| ([^|]+) \| (\w) \|$", FETCH_TEXT, re.MULTILINE))
COMPLETION = slice(3, 6)
"""The hops of the Fetch that run on the thread that completes it."""


def functions(path: Path) -> set[str]:
    """Return the qualified names of all functions of a file."""
    found = set()

    def walk(node: ast.AST, above: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{above}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    found.add(name)
                walk(child, f"{name}.")

    walk(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


class Recorded:
    """Records the calls of the page's functions, on threads that start while it is installed."""

    def __init__(self) -> None:
        self._wanted = {(str(hop.path), hop.function) for hop in (*PRODUCE, *FETCH)}
        self.calls: list[Hop] = []

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "call" and (code.co_filename, code.co_qualname) in self._wanted:
            name = threading.current_thread().name
            self.calls.append(Hop(THREADS.get(name, "H"), Path(code.co_filename), code.co_qualname))

    def count(self, function: str) -> int:
        return sum(call.function == function for call in self.calls)

    def after(self, function: str, times: int) -> None:
        """Wait until a function was called this often."""
        wait_until(lambda: self.count(function) >= times, f"{function} is not called")

    def clear(self) -> None:
        """Drop the recorded calls once the processor waits for the next request. A Fetch may wait too."""
        wait_until(lambda: self.calls[-1].function == "Reactor.run_once", "the processor is not done")
        self.calls.clear()

    def way(self, known: list[Hop]) -> list[Hop]:
        """Return the calls of these functions from the turn that reads the request on, without other turns."""
        functions = {hop.function for hop in known}
        calls = [call for call in self.calls if call.function in functions]
        read = next(at for at, call in enumerate(calls) if call.function == "Selector.read")
        turns = [call for call in calls[read:] if call.function != "Reactor.run_once"]
        return [calls[read - 1], *turns]


class Scene:
    """A server with recorded threads, and a client with two connections."""

    def __init__(self, server: EmbeddedServer, recorded: Recorded) -> None:
        self.recorded = recorded
        self.producing, self.fetching = RawClient(server.address()), RawClient(server.address())
        self.offset = 0
        server.create_topic(TOPIC)
        for client in (self.producing, self.fetching):
            self.produce(client, 1)

    def produce(self, client: RawClient, size_bytes: int) -> None:
        """Produce one record. Return when the server has finished the request."""
        ends = self.recorded.count("RequestLedger.end")
        batch = bytes(encode_batch([Record(value=bytes(size_bytes))]))
        request = ProduceRequest(None, -1, 60_000, [TopicProduceData(TOPIC, NO_ID, [PartitionProduceData(0, batch)])])
        client.call(request, 9)
        self.offset += 1
        self.recorded.after("RequestLedger.end", ends + 1)

    def fetch(self, max_wait_ms: int) -> int:
        """Request the next record. Return when the request waits."""
        parked = self.recorded.count("KafkaChannel.request_received")
        partition = FetchPartition(0, fetch_offset=self.offset, partition_max_bytes=1 << 20)
        topic = FetchTopic(TOPIC, NO_ID, [partition])
        number = self.fetching.send(FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[topic]), 12)
        self.recorded.after("KafkaChannel.request_received", parked + 1)
        return number


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    recorded = Recorded()
    threading.setprofile(recorded)
    try:
        with EmbeddedServer(TIMED) as server:
            scene = Scene(server, recorded)
            yield scene
            scene.producing.close()
            scene.fetching.close()
    finally:
        threading.setprofile(None)


@pytest.mark.parametrize("hop", [*PRODUCE, *FETCH], ids=lambda hop: hop.function)
def test_a_hop_is_a_function_of_its_file(hop: Hop) -> None:
    assert hop.function in functions(hop.path)


@pytest.mark.interpreted
def test_a_produce_takes_the_way_of_the_page(scene: Scene) -> None:
    scene.recorded.clear()
    scene.produce(scene.producing, 100)
    assert scene.recorded.way(PRODUCE) == PRODUCE


@pytest.mark.interpreted
@pytest.mark.parametrize("completed_by", COMPLETED_BY)
def test_a_fetch_takes_the_way_of_the_page(scene: Scene, completed_by: str) -> None:
    known = [*COMMON, *FETCH]
    thread = COMPLETED_BY[completed_by]
    scene.recorded.clear()
    number = scene.fetch(max_wait_ms=1 if "max_wait_ms" in completed_by else 600_000)
    if "max_wait_ms" not in completed_by:
        way = scene.recorded.way(known)
        assert way == [*COMMON, *FETCH[: COMPLETION.start]]
        scene.recorded.clear()
        scene.produce(scene.producing, COPY_UP_TO_BYTES + 1 if "small" in completed_by else INLINE_MAX_BYTES + 1)
    scene.fetching.receive(1, 12, number)
    scene.recorded.after(FETCH[-1].function, 1)
    functions = {hop.function for hop in FETCH[COMPLETION.start :]}
    completed, answered = FETCH[COMPLETION], FETCH[COMPLETION.stop :]
    calls = [call for call in scene.recorded.calls if call.function in functions]
    assert calls[: len(completed)] == [hop._replace(thread=thread) for hop in completed]
    if thread == "P":
        assert calls[len(completed) :] == answered
    elif thread == "S":
        # There are no records, so the answer is one piece of bytes.
        assert calls[len(completed) :] == [hop for hop in answered if hop.function != "NetworkSend.write_to"]


@pytest.mark.interpreted
def test_equal_requests_take_the_same_way(scene: Scene) -> None:
    scene.recorded.clear()
    for _ in range(5):
        scene.producing.call(MetadataRequest([]), 12)
    assert [scene.recorded.count(function) for function in ("RequestPipeline.submit", "execute")] == [5, 5]


def test_each_request_takes_at_most_fifteen_hops() -> None:
    assert re.findall(r"^\| (\d+) \|", PRODUCE_TEXT, re.MULTILINE) == [str(number) for number in range(1, 13)]
    assert re.findall(r"^\| (\d+) \|", FETCH_TEXT, re.MULTILINE) == [str(number) for number in range(7, 16)]
    assert set(COMPLETED_BY.values()) == {"P", "H", "S"}
