"""Start-up time and idle memory: `python -m bench.startup [--targets klamm kafka] [--rounds 5]`.

Both times begin just before the process is created. The first ends when a client has the answer to its first
ApiVersions. The second ends when the client's first record is acknowledged; the server creates its topic on demand. The
client tries to connect every millisecond. Memory is the resident set three seconds later, and again with many idle
connections. Each start has a data directory of its own. Kafka's is formatted beforehand; the others create theirs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.frames import METADATA_VERSION, PRODUCE_VERSION, record_batch
from bench.load import IdleConnections
from bench.peers import PEERS
from bench.run import head, row
from klamm.wire.errors import ErrorCode
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient

TOPIC = "first"
PAUSE_S = 0.001
IDLE_S = 3.0
IDLE_CONNECTIONS = 5_000


@dataclass(slots=True, frozen=True)
class StartUp:
    """The times of one start, in milliseconds."""

    first_answer_ms: float
    first_produce_ms: float


@dataclass(slots=True, frozen=True)
class Memory:
    """The resident memory of a server, in MiB."""

    idle_mib: float
    crowded_mib: float


def _pause(server: Server, deadline: float) -> None:
    if server.process.poll() is not None or time.monotonic() > deadline:
        raise RuntimeError(f"{server.name} does not start:\n{server.log_tail()}")
    time.sleep(PAUSE_S)


def _first_answer(server: Server, deadline: float) -> WireClient:
    """Return a connection on which the server has answered ApiVersions."""
    while True:
        try:
            client = WireClient(HOST, server.port)
            if client.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE:
                return client
        except OSError:
            pass
        _pause(server, deadline)


def _produce_first(client: WireClient, server: Server, deadline: float) -> None:
    """Ask for the topic until the server has created it, and then produce until a record is acknowledged."""
    metadata = MetadataRequest([MetadataRequestTopic(name=TOPIC)])
    while client.call(metadata, METADATA_VERSION).topics[0].error_code != ErrorCode.NONE:
        _pause(server, deadline)
    data = [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, record_batch(1, 100))])]
    produce = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)
    while client.call(produce, PRODUCE_VERSION).responses[0].partition_responses[0].error_code != ErrorCode.NONE:
        _pause(server, deadline)


def start(server: Server) -> StartUp:
    """Start the server, and return its times; it still runs afterwards.

    Raises RuntimeError if the server ends, or does not acknowledge a record within its time limit.
    """
    begin = server.spawn()
    deadline = begin + server.start_timeout_s
    with _first_answer(server, deadline) as client:
        answered = time.monotonic()
        _produce_first(client, server, deadline)
        produced = time.monotonic()
    return StartUp((answered - begin) * 1000, (produced - begin) * 1000)


def memory(server: Server) -> Memory:
    """Return the memory of a server that has just started."""
    time.sleep(IDLE_S)
    idle = server.rss_bytes()
    with IdleConnections((HOST, server.port), IDLE_CONNECTIONS) as connections:
        crowded = server.rss_bytes()
        if connections.release() != IDLE_CONNECTIONS:
            raise RuntimeError(f"{server.name} has closed idle connections")
    return Memory(idle / (1 << 20), crowded / (1 << 20))


@contextmanager
def starts(targets: Sequence[str], rounds: int) -> Iterator[Iterator[tuple[Server, StartUp]]]:
    """Yield each server in turn, started with defaults in a directory of its own. The next step stops it.

    Before that, each server is started once without a result, so that the system has all its files in memory.
    """
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
        yield _starts(targets, rounds, Path(directory))


def _starts(targets: Sequence[str], rounds: int, directory: Path) -> Iterator[tuple[Server, StartUp]]:
    for number in range(-1, rounds):
        for target in targets:
            server = PEERS[target](directory / f"{target}-{number}")
            try:
                started = start(server)
                if number >= 0:
                    yield server, started
                server.stop()
            except BaseException:
                server.kill9()
                raise


def rows(times: dict[str, list[StartUp]]) -> str:
    """Return two lines of `bench.run`'s table."""
    answers = {name: [one.first_answer_ms for one in many] for name, many in times.items()}
    produced = {name: [one.first_produce_ms for one in many] for name, many in times.items()}
    return "\n".join(
        [
            row("Process start to first answer", "ms", answers, more_is_better=False),
            row("Process start to first acknowledged produce", "ms", produced, more_is_better=False),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description="Start-up time and idle memory")
    parser.add_argument("--targets", nargs="+", choices=PEERS, default=["klamm", "kafka"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--times-only", action="store_true", help="do not look at the memory, which takes longer")
    chosen = parser.parse_args(arguments)
    times: dict[str, list[StartUp]] = {target: [] for target in chosen.targets}
    memories: dict[str, list[Memory]] = {target: [] for target in chosen.targets}
    with starts(chosen.targets, chosen.rounds) as all_starts:
        for server, started in all_starts:
            times[server.name].append(started)
            if not chosen.times_only:
                memories[server.name].append(memory(server))
    print(f"{head(chosen.targets)}\n{rows(times)}")
    if not chosen.times_only:
        idle = {name: [one.idle_mib for one in many] for name, many in memories.items()}
        crowded = {name: [one.crowded_mib for one in many] for name, many in memories.items()}
        print(row("Idle resident memory", "MiB", idle, more_is_better=False))
        print(row(f"With {IDLE_CONNECTIONS:,} idle connections", "MiB", crowded, more_is_better=False))


if __name__ == "__main__":
    main()
