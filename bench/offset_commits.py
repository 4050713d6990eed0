"""The cost of `__consumer_offsets` for an OffsetCommit: `python -m bench.offset_commits [--rounds 5] [--commits 2000]`.

The first FindCoordinator creates that topic; from then on klamm writes each commit to it too. Two brokers take turns:
one with the topic, and one without, because no client has sent it a FindCoordinator. The table has the processor
microseconds of the process for one commit, including the client, until all is written: the median of the rounds with
the least and the largest, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Final

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

_GROUPS: Final = 100
_SIZES: Final = (1, 50)
_VERSION: Final = 9


class Committer:
    """A broker, and a client that commits the offsets of `partitions` partitions in each request."""

    def __init__(self, partitions: int, *, has_topic: bool) -> None:
        self.server = EmbeddedServer(["listeners.default.gates=[]"])
        self.server.start()
        self.topic = self.server.create_topic(partitions=partitions)
        self.client = RawClient(self.server.address())
        self._partitions = partitions
        self._committed = 0
        if has_topic:
            self.client.call(FindCoordinatorRequest("", 0, ["g"]), 4)

    def close(self) -> None:
        """Stop the broker."""
        self.client.close()
        self.server.stop()

    def run(self, count: int) -> float:
        """Commit `count` times, and return the processor microseconds of one commit."""
        began_ns = time.process_time_ns()
        for _ in range(count):
            self._committed += 1
            partitions = [
                OffsetCommitRequestPartition(index, self._committed, committed_metadata="")
                for index in range(self._partitions)
            ]
            group = f"g{self._committed % _GROUPS}"
            request = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(self.topic, partitions=partitions)])
            answer = self.client.call(request, _VERSION)
            assert answer.topics[0].partitions[0].error_code == 0
        self.server.api_set().internal_topics.catch_up()
        return (time.process_time_ns() - began_ns) / 1000 / count


def shown(values: list[float]) -> str:
    """Return a cell of the table."""
    return f"{median(values):,.0f} ({min(values):,.0f}–{max(values):,.0f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=2000)
    arguments = parser.parse_args()
    print("| offsets in a commit | without the topic, µs | with it, µs | ratio |")
    print("| --- | --- | --- | --- |")
    for size in _SIZES:
        committers = [Committer(size, has_topic=has_topic) for has_topic in (False, True)]
        found: list[list[float]] = [[], []]
        for _ in range(arguments.rounds + 1):
            for committer, times in zip(committers, found, strict=True):
                times.append(committer.run(arguments.commits))
        for committer in committers:
            committer.close()
        # The first round only fills caches.
        without, beside = (times[1:] for times in found)
        print(f"| {size} | {shown(without)} | {shown(beside)} | {median(beside) / median(without):.2f} |", flush=True)


if __name__ == "__main__":
    main()
