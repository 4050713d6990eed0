"""Creating and deleting many partitions: `python -m bench.topic_changes [--partitions 10000] [--rounds 3]`.

There are three layouts: one topic with all partitions, topics of 100, and topics of one. For each, a row has the time
and the server's processor time of CreateTopics and DeleteTopics. It also has the neighbor's wait: the longest answer to
IncrementalAlterConfigs of another topic, which another connection sends again and again. Between the two, the server
stops cleanly and starts again with all directories made.

The last rows are about a kill: one topic grows from one partition to a tenth of all, another is created with all
partitions, and the server is killed. They have the time of the next start, and the open descriptors before and after.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.many_topics import first_answer_ms
from klamm.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.delete_topics import DeleteTopicsRequest
from klamm.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.peers.klamm_server import KlammServer
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient

_TIMEOUT_MS = 120_000
_TOPIC = 2


def processor_s(server: Server) -> float:
    """Return the processor seconds that the server's process has used so far."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Neighbour:
    """Alters the configs of one topic without a pause, and notes the longest wait."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = threading.Event()
        self.longest_ms = 0.0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Neighbour:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        with WireClient(HOST, self._server.port, 120) as client:
            while not self._stop.is_set():
                number += 1
                change = AlterableConfig("retention.ms", 0, str(number + 1000))
                request = IncrementalAlterConfigsRequest([AlterConfigsResource(_TOPIC, "neighbour", [change])])
                begin = time.monotonic()
                (answer,) = client.call(request, 1).responses
                self.longest_ms = max(self.longest_ms, (time.monotonic() - begin) * 1000)
                if answer.error_code:
                    raise RuntimeError(answer.error_message)


def measured(server: Server, work: Callable[[WireClient], Sequence[Any]]) -> str:
    """Do the work, and return a text: its seconds, the server's processor seconds, and the neighbor's longest wait."""
    with WireClient(HOST, server.port, 120) as client, Neighbour(server) as neighbour:
        used, begin = processor_s(server), time.monotonic()
        answers = work(client)
        took, used = time.monotonic() - begin, processor_s(server) - used
    if failed := [each for each in answers if each.error_code]:
        raise RuntimeError(failed[0].error_message)
    return f"{took:.2f} s ({used:.2f} s processor, neighbour at most {neighbour.longest_ms:.0f} ms)"


def descriptors(server: Server) -> int:
    """Return the number of open descriptors of the server's process: files, sockets and so on."""
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def grown_and_killed(count: int, settle_s: float) -> str:
    """Return a row: CreatePartitions, then a start after SIGKILL with a topic of `count` partitions."""
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as name:
        server = KlammServer(Path(name) / "data")
        server.stop_timeout_s = 120
        first_answer_ms(server)
        with WireClient(HOST, server.port, 120) as client:
            client.call(CreateTopicsRequest([CreatableTopic(each, 1, 1) for each in ("neighbour", "growing")]), 7)
        wanted = CreatePartitionsRequest([CreatePartitionsTopic("growing", count // 10, None)], timeout_ms=_TIMEOUT_MS)
        grown = measured(server, lambda client: client.call(wanted, 3).results)
        with WireClient(HOST, server.port, 120) as client:
            client.call(CreateTopicsRequest([CreatableTopic("many", count, 1)], timeout_ms=_TIMEOUT_MS), 7)
        time.sleep(settle_s)
        before = descriptors(server)
        server.kill9()
        started = first_answer_ms(server)
        after = descriptors(server)
        server.stop()
    return f"| {count // 10} | {grown} | {started:.0f} ms | {before}, {after} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.topic_changes", description="Many partitions at once")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--settle-s", type=float, default=0, help="wait for directories before the stop")
    chosen = parser.parse_args(arguments)
    # Otherwise this process collects garbage while it decodes 300,000 configs, and the neighbor waits up to 140 ms
    # longer.
    gc.disable()
    count = chosen.partitions
    print("| | Create | Stop | Start | Delete |\n| --- | --- | --- | --- | --- |")
    for each in (count, 100, 1):
        names = [f"topic-{number:05d}" for number in range(count // each)]
        for _ in range(chosen.rounds):
            with tempfile.TemporaryDirectory(prefix="klamm-bench-") as name:
                server = KlammServer(Path(name) / "data")
                server.stop_timeout_s = 120
                first_answer_ms(server)
                with WireClient(HOST, server.port) as client:
                    client.call(CreateTopicsRequest([CreatableTopic("neighbour", 1, 1)]), 7)
                topics = [CreatableTopic(topic, each, 1) for topic in names]
                request = CreateTopicsRequest(topics, timeout_ms=_TIMEOUT_MS)
                created = measured(server, lambda client, wanted=request: client.call(wanted, 7).topics)
                time.sleep(chosen.settle_s)
                begin = time.monotonic()
                server.stop()
                stopped = time.monotonic() - begin
                started = first_answer_ms(server)
                gone = DeleteTopicsRequest(topic_names=names, timeout_ms=_TIMEOUT_MS)
                deleted = measured(server, lambda client, wanted=gone: client.call(wanted, 5).responses)
                server.stop()
            print(f"| {len(names)} topics of {each} | {created} | {stopped:.2f} s | {started:.0f} ms | {deleted} |")
    print("\n| From 1 to | Grow | Start after SIGKILL | Descriptors before, after |\n| --- | --- | --- | --- |")
    for _ in range(chosen.rounds):
        print(grown_and_killed(count, chosen.settle_s))


if __name__ == "__main__":
    main()
