"""Steps of share groups. The outcomes of each step are compared between two servers.

Steps wait for outcomes that come later on one server: e.g. in Kafka a member gets its partitions with a later
heartbeat.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from klamm import ErrorCode
from klamm.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from klamm.wire.messages.delete_groups import DeleteGroupsRequest
from klamm.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from klamm.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from klamm.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.wire.messages.share_acknowledge import AcknowledgementBatch as Acknowledged
from klamm.wire.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest
from klamm.wire.messages.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from klamm.wire.messages.share_group_describe import ShareGroupDescribeRequest
from klamm.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.interop.beside_kafka.data_cases import batch, produce

Step = tuple[str, Any]
Batch = tuple[int, int, Sequence[int]]
GROUP, TOPIC, MEMBER = "sharers", "shared", "AAAAAAAAAAAAAAAAAAAAAA"
ACCEPT, RELEASE, REJECT = 1, 2, 3
UNKNOWN_ID = b"\7" * 16
PATIENCE_S = 20
_GROUP_CONFIG = 32
_OWN: Any = object()


class ShareSteps:
    """The steps on one server. TOPIC has one partition, without records."""

    group, topic = GROUP, TOPIC

    def __init__(self, target: Any) -> None:
        self._target = target
        self._ask = target.client.call
        self._epoch = 0

    # Requests

    def _heartbeat(self, epoch: int, member: str = MEMBER, group: str | None = None, topics: Any = _OWN) -> Any:
        names = None if topics is None else [self.topic] if topics is _OWN else [*topics]
        group_id = self.group if group is None else group
        return self._ask(ShareGroupHeartbeatRequest(group_id, member, epoch, None, names), 1)

    def _join(self) -> int:
        """Join, and wait for the partition. Return the member's epoch."""
        answer = self._heartbeat(0)
        deadline = time.monotonic() + PATIENCE_S
        while not (answer.assignment and answer.assignment.topic_partitions) and time.monotonic() < deadline:
            time.sleep(0.1)
            answer = self._heartbeat(answer.member_epoch, topics=None)
        return int(answer.member_epoch)

    def _fetch(self, epoch: int, *batches: Batch, topic_id: bytes | None = None, index: int = 0, **fields: Any) -> Any:
        wanted = FetchPartition(
            index, acknowledgement_batches=[AcknowledgementBatch(a, b, [*c]) for a, b, c in batches]
        )
        topics = [FetchTopic(self._topic_id if topic_id is None else topic_id, [wanted])]
        limits = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 100, "batch_size": 100}
        request = ShareFetchRequest(self.group, fields.pop("member", MEMBER), epoch, topics=topics, **(limits | fields))
        return self._ask(request, 1)

    def _codes(self, answer: Any) -> Any:
        """Return the codes of a response of ShareFetch or ShareAcknowledge."""
        partitions = [each for topic in answer.responses for each in topic.partitions]
        codes = [(each.error_code, getattr(each, "acknowledge_error_code", 0)) for each in partitions]
        # A partition may be in the response only because it is new in the session.
        return answer.error_code, [each for each in codes if each != (0, 0)]

    def _acquired(self, *batches: Batch) -> Any:
        """Fetch until records are acquired. Return them and the codes of the acknowledgements in the response."""
        deadline = time.monotonic() + PATIENCE_S
        codes = None
        while True:
            answer = self._fetch(self._epoch, *batches, max_wait_ms=500)
            self._epoch += 1
            codes = self._codes(answer) if codes is None else codes
            found = [
                (each.first_offset, each.last_offset, each.delivery_count)
                for topic in answer.responses
                for partition in topic.partitions
                for each in partition.acquired_records
            ]
            if found or answer.error_code or time.monotonic() > deadline:
                return codes, found
            batches = ()

    def _acknowledge(self, epoch: int, *batches: Batch, topic_id: bytes | None = None, index: int = 0) -> Any:
        partition = AcknowledgePartition(index, [Acknowledged(a, b, [*c]) for a, b, c in batches])
        topics = [AcknowledgeTopic(self._topic_id if topic_id is None else topic_id, [partition])]
        return self._codes(self._ask(ShareAcknowledgeRequest(self.group, MEMBER, epoch, topics=topics), 1))

    def _next_acknowledge(self, *batches: Batch, **fields: Any) -> Any:
        codes = self._acknowledge(self._epoch, *batches, **fields)
        self._epoch += 1
        return codes

    def _produce(self, count: int) -> None:
        records = batch(*[b"v"] * count)
        self._ask(produce((self.topic, 0, records))(9, self._target.ids), 9)

    @property
    def _topic_id(self) -> bytes:
        found: bytes = self._target.ids.of(self.topic)
        return found

    # Steps

    def run(self) -> Iterator[Step]:
        """Run the steps. Return each step with its outcome."""
        resource = AlterConfigsResource(
            _GROUP_CONFIG, GROUP, [AlterableConfig("share.auto.offset.reset", 0, "earliest")]
        )
        yield "config", self._ask(IncrementalAlterConfigsRequest([resource]), 1).responses[0].error_code
        yield from self._without_group()
        yield from self._members()
        yield from self._sessions()
        yield from self._records()
        yield from self._offsets()

    def _without_group(self) -> Iterator[Step]:
        yield "describe none", self._described("none")
        yield "offsets of none", self._offsets_of("none", TOPIC)
        yield "alter offsets of none", self._altered("none", TOPIC, 0)
        yield "delete offsets of none", self._forgotten("none", TOPIC)
        yield "delete none", self._ask(DeleteGroupsRequest(["none"]), 2).results[0].error_code
        yield "acknowledge without session", self._acknowledge(1, (0, 0, [ACCEPT]))

    def _members(self) -> Iterator[Step]:
        for name, arguments in {
            "no group": (0, MEMBER, ""),
            "no member": (0, ""),
            "epoch -2": (-2,),
            "unknown member": (1,),
            "unknown leaves": (-1,),
            "no topics": (0, MEMBER, GROUP, ()),
            "null topics": (0, MEMBER, GROUP, None),
        }.items():
            yield name, self._heartbeat(*arguments).error_code
        epoch = self._join()
        yield "wrong epoch", self._heartbeat(epoch + 5).error_code
        yield "as another kind", self._described("none", GROUP)
        yield "leaves", (self._heartbeat(-1).error_code, self._heartbeat(-1).error_code)
        yield "described empty", self._described(GROUP)

    def _sessions(self) -> Iterator[Step]:
        self._join()
        yield "no session", self._codes(self._fetch(1))
        yield "acknowledges at once", self._codes(self._fetch(0, (0, 0, [ACCEPT])))
        yield "begins", self._codes(self._fetch(0))
        for epoch in (0, 1, 5, -2):
            yield f"acknowledge epoch {epoch}", self._acknowledge(epoch, (0, 0, [ACCEPT]))
        yield "begins again", self._fetch(0).error_code
        for epoch in (7, -2):
            yield f"fetch epoch {epoch}", self._codes(self._fetch(epoch))
        yield "ends", self._codes(self._fetch(-1))
        yield "ended", self._codes(self._fetch(-1))
        yield "unknown partition", self._codes(self._fetch(0, index=9))
        yield "no member", self._fetch(0, member="").error_code
        yield "ends again", self._fetch(-1).error_code

    def _records(self) -> Iterator[Step]:
        self._produce(10)
        yield "acquire", self._acquired()
        yield "accept", self._next_acknowledge((0, 1, [ACCEPT]))
        for name, batches in {
            "again": [(0, 1, [ACCEPT])],
            "beyond the end": [(50, 51, [ACCEPT])],
            "backwards": [(3, 2, [ACCEPT])],
            "overlapping": [(2, 4, [ACCEPT]), (4, 5, [ACCEPT])],
            "out of order": [(5, 6, [ACCEPT]), (2, 3, [ACCEPT])],
            "unknown type": [(2, 2, [9])],
            "negative type": [(2, 2, [-1])],
            "too many types": [(2, 3, [ACCEPT, ACCEPT, ACCEPT])],
            "no type": [(2, 3, [])],
        }.items():
            yield name, self._next_acknowledge(*batches)
        yield "unknown topic", self._next_acknowledge((2, 2, [ACCEPT]), topic_id=UNKNOWN_ID)
        yield "unknown partition", self._next_acknowledge((2, 2, [ACCEPT]), index=9)
        yield "gap and reject", self._next_acknowledge((2, 4, [ACCEPT, 0, REJECT]))
        yield "release with a fetch", self._acquired((5, 7, [RELEASE]))
        yield "reject", self._next_acknowledge((5, 7, [REJECT]))
        yield "bad with a fetch", self._codes(self._fetch(self._epoch, (0, 0, [ACCEPT])))
        self._epoch += 1
        yield "the rest", self._next_acknowledge((8, 9, [ACCEPT]))
        self._produce(3)
        yield "more", self._acquired()
        yield "delete offsets of members", self._forgotten(GROUP, TOPIC)
        yield "alter offsets of members", self._altered(GROUP, TOPIC, 0)
        yield "delete a group of members", self._ask(DeleteGroupsRequest([GROUP]), 2).results[0].error_code
        yield "ends", self._codes(self._fetch(-1))
        self._heartbeat(-1)
        self._join()
        self._epoch = 0
        yield "released by the end", self._acquired()
        yield "accept the rest", self._next_acknowledge((10, 12, [ACCEPT]))
        yield "final", self._acknowledge(-1)
        self._heartbeat(-1)

    def _offsets(self) -> Iterator[Step]:
        yield "described", self._described(GROUP)
        yield "of an unknown topic", self._altered(GROUP, "none", 0)
        yield "to the middle", self._altered(GROUP, TOPIC, 5)
        yield "in the middle", self._settled_offsets(5)
        yield "forget an unknown topic", self._forgotten(GROUP, "none")
        yield "forget", self._forgotten(GROUP, TOPIC)
        yield "delete", self._ask(DeleteGroupsRequest([GROUP]), 2).results[0].error_code
        yield "deleted", self._described(GROUP)

    # Outcomes

    def _described(self, *groups: str) -> list[Any]:
        found = self._ask(ShareGroupDescribeRequest([*groups]), 1).groups
        return [(each.error_code, each.group_state, each.assignor_name, len(each.members)) for each in found]

    def _offsets_of(self, group: str, topic: str) -> Any:
        wanted = [DescribeShareGroupOffsetsRequestTopic(topic, [0])]
        request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, wanted)])
        (found,) = self._ask(request, 0).groups
        partitions = [each for one in found.topics for each in one.partitions]
        return found.error_code, [(each.error_code, each.start_offset) for each in partitions]

    def _settled_offsets(self, start_offset: int) -> Any:
        """Return the offsets once they have the start offset, which another part of Kafka writes."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self._offsets_of(GROUP, TOPIC)
            if found == (ErrorCode.NONE, [(ErrorCode.NONE, start_offset)]) or time.monotonic() > deadline:
                return found
            time.sleep(0.1)

    def _altered(self, group: str, topic: str, offset: int) -> Any:
        topics = [AlterShareGroupOffsetsRequestTopic(topic, [AlterShareGroupOffsetsRequestPartition(0, offset)])]
        answer = self._ask(AlterShareGroupOffsetsRequest(group, topics), 0)
        return answer.error_code, [each.error_code for one in answer.responses for each in one.partitions]

    def _forgotten(self, group: str, topic: str) -> Any:
        request = DeleteShareGroupOffsetsRequest(group, [DeleteShareGroupOffsetsRequestTopic(topic)])
        answer = self._ask(request, 0)
        return answer.error_code, [each.error_code for each in answer.responses]
