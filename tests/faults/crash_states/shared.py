"""A workload for share groups (KIP-932): it holds, accepts, releases and rejects records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from klamm.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from klamm.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.faults.crash_states.workload import SMALL, QuietHarness, Workload

SHARE_GROUP = "sharers"
ACCEPT, RELEASE, REJECT = 1, 2, 3
DONE = "done"
"""The value of an event for an accepted or rejected record. For a released record, it is the number of deliveries."""
_GROUP_RESOURCE = 32
_STRICT = 1


class ShareMember:
    """A member of the share group, with its own share session."""

    def __init__(self, harness: QuietHarness, member_id: str) -> None:
        self._harness = harness
        self._member_id = member_id
        self._epoch = 0

    def join(self, *topics: str) -> Any:
        """Join the group. Return the answer to the first heartbeat."""
        return self._harness.ask(ShareGroupHeartbeatRequest(SHARE_GROUP, self._member_id, 0, None, list(topics)), 1)

    def fetch(self, topic_id: bytes, partition: int, max_records: int) -> Any:
        """Fetch from one partition. Return the answer, and the delivery counts by offset."""
        request = ShareFetchRequest(
            SHARE_GROUP,
            self._member_id,
            self._epoch,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=_STRICT,
            topics=[FetchTopic(topic_id, [FetchPartition(partition)])],
        )
        answer = self._harness.ask(request, 2)
        self._epoch += not answer.error_code
        found = {
            offset: acquired.delivery_count
            for topic in answer.responses
            if topic.topic_id == topic_id
            for data in topic.partitions
            if data.partition_index == partition
            for acquired in data.acquired_records
            for offset in range(acquired.first_offset, acquired.last_offset + 1)
        }
        return answer, found

    def acknowledge(self, topic_id: bytes, partition: int, types: Mapping[int, int]) -> Any:
        """Acknowledge records. Return the answer for the partition."""
        batches = [AcknowledgementBatch(offset, offset, [kind]) for offset, kind in sorted(types.items())]
        topics = [AcknowledgeTopic(topic_id, [AcknowledgePartition(partition, batches)])]
        answer = self._harness.ask(ShareAcknowledgeRequest(SHARE_GROUP, self._member_id, self._epoch, topics=topics), 2)
        self._epoch += not answer.error_code
        return answer.responses[0].partitions[0] if answer.responses else answer


class Sharer:
    """A member whose acknowledgements are recorded as events of the workload."""

    def __init__(self, work: Workload, member_id: str) -> None:
        self._work = work
        self._member = ShareMember(work.harness, member_id)
        with work.event("share member", member_id, None):
            work.check(self._member.join("shared", "passing"))

    def take(self, name: str, *kinds: int, held: int = 0, partition: int = 0) -> None:
        """Acquire one record for each acknowledge type, acknowledge it with this type, and hold some more."""
        if name not in self._work.topics:
            return
        topic = self._work.topics[name]
        assert topic.id is not None
        found: dict[int, int] = {}
        with self._work.event("share fetch", name, None):
            answer, found = self._member.fetch(topic.id, partition, len(kinds) + held)
            self._work.check(answer)
        for offset, deliveries in found.items():
            self._work.new_event("delivered", (topic, partition, offset), deliveries)
        types = dict(zip(sorted(found), kinds, strict=False))
        events = [
            self._work.new_event("share", (topic, partition, offset), found[offset] if kind == RELEASE else DONE)
            for offset, kind in types.items()
        ]
        if not events:
            return
        with self._work.event("acknowledge", name, None):
            self._work.check(self._member.acknowledge(topic.id, partition, types))
            for event in events:
                event.acknowledged_at = len(self._work.recording)


def _begin(work: Workload) -> None:
    """Configure the group to read from the first record on."""
    with work.event("share reset", None, "earliest"):
        work._alter_config(_GROUP_RESOURCE, SHARE_GROUP, "share.auto.offset.reset", "earliest")


def run_shared(work: Workload) -> None:
    """Run two members on topics that are rolled, cut, deleted and created again; twice, with a restart in between."""
    work.create("shared", 2, **SMALL)
    work.create("passing", **SMALL)
    _begin(work)
    first, second = Sharer(work, "first"), Sharer(work, "second")
    work.produce("shared", count=6)
    work.produce("shared", 1, count=3)
    work.produce("passing", count=4)
    first.take("shared", RELEASE, ACCEPT, REJECT, held=1)
    second.take("shared", RELEASE, ACCEPT)
    work.flush()
    first.take("shared", ACCEPT, partition=1)
    second.take("passing", RELEASE, ACCEPT, ACCEPT)
    work.delete("passing")
    work.create("passing", **SMALL)
    work.produce("passing", count=3)
    second.take("passing", REJECT, held=1)
    first.take("shared", RELEASE)
    work.produce("shared", count=3)
    second.take("shared", ACCEPT, ACCEPT, held=1)
    work.restart()
    third = Sharer(work, "third")
    third.take("shared", RELEASE, ACCEPT)
    work.produce("shared", count=4)
    work.delete_records("shared", 3)
    third.take("shared", ACCEPT, RELEASE, ACCEPT, held=1)
    third.take("passing", ACCEPT, held=1)
    work.flush()
    work.checkpoint()
    third.take("shared", ACCEPT, RELEASE, partition=1)
    work.produce("shared", count=3)
    third.take("shared", RELEASE, ACCEPT, REJECT)
