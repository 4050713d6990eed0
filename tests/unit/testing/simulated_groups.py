"""Members of groups for simulated histories: classic, consumer (KIP-848), streams (KIP-1071) and share (KIP-932).

They join, commit, are silent beyond their session, continue as if nothing had happened, and leave.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from klamm import ErrorCode
from klamm.testing.histories import Call
from klamm.wire.messages import (
    consumer_group_heartbeat,
    heartbeat,
    incremental_alter_configs,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    share_acknowledge,
    share_fetch,
    share_group_heartbeat,
    streams_group_heartbeat,
    sync_group,
)
from tests.unit.testing.simulated_clients import Ask, Workload, partition_name

CLASSIC, CONSUMER, STREAMS, SHARE = "classic", "consumer", "streams", "share"
MOVED = "letters"
"""The topic whose partitions move between members."""
MOVED_PARTITIONS: Final = 4
SESSION_MS: Final = 6_000
LOCK_MS: Final = 2_000
BEAT_MS: Final = 700
SETTINGS: Final = (
    "group.initial.rebalance.delay.ms=200",
    f"group.consumer.min.session.timeout.ms={SESSION_MS}",
    f"group.consumer.session.timeout.ms={SESSION_MS}",
    "group.consumer.min.heartbeat.interval.ms=500",
    "group.consumer.heartbeat.interval.ms=500",
    "group.streams.initial.rebalance.delay.ms=200",
    f"group.streams.min.session.timeout.ms={SESSION_MS}",
    f"group.streams.session.timeout.ms={SESSION_MS}",
    "group.streams.min.heartbeat.interval.ms=500",
    "group.streams.heartbeat.interval.ms=500",
    f"group.share.min.session.timeout.ms={SESSION_MS}",
    f"group.share.session.timeout.ms={SESSION_MS}",
    "group.share.min.heartbeat.interval.ms=500",
    "group.share.heartbeat.interval.ms=500",
    f"group.share.min.record.lock.duration.ms={LOCK_MS}",
    f"group.share.record.lock.duration.ms={LOCK_MS}",
    "group.share.delivery.count.limit=10",
)
_KINDS: Final = {1: "accept", 2: "release", 3: "reject", 4: "renew"}
_GROUP_RESOURCE: Final = 32
_LEAVES: Final = -1
_UNKNOWN: Final = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""Errors after which Kafka may have stored a commit."""
_SUBTOPOLOGY: Final = "0"


def share_from_the_beginning() -> Any:
    """Return the request after which the share group delivers the existing records too."""
    config = incremental_alter_configs.AlterableConfig("share.auto.offset.reset", 0, "earliest")
    resource = incremental_alter_configs.AlterConfigsResource(_GROUP_RESOURCE, SHARE, [config])
    return incremental_alter_configs.IncrementalAlterConfigsRequest([resource])


def _moved(partition: int) -> str:
    return f"{MOVED}-{partition}"


class Owner:
    """The common part of classic and consumer members: partitions, and their committed offsets."""

    group: str
    commit_version: int

    def __init__(self, work: Workload, process: str, instance_id: str | None = None) -> None:
        self.work = work
        self.process = process
        self.instance_id = instance_id
        self.member_id = ""
        self.epoch = -1
        self.owned: list[int] = []

    def own(self, partitions: list[int]) -> None:
        """Record the partitions that the member now owns."""
        self.owned = partitions
        self._record("owned", partitions)

    def give_up(self) -> None:
        """Record that the member owns nothing."""
        if self.owned:
            self.owned = []
            self._record("revoked", [])

    def _record(self, function: str, partitions: list[int]) -> None:
        value = {
            "group": self.group,
            "member": self.member_id,
            "epoch": self.epoch,
            "partitions": [_moved(each) for each in partitions],
        }
        with self.work.record.operation(self.process, function, value) as call:
            call.ok()

    def commit(self) -> Ask:
        """Commit one of the member's partitions, as an owner and as a writer of a register."""
        partition, offset = self.work.choose.choice(self.owned), next(self.work.values)
        register = {"register": f"{self.group} {_moved(partition)}", "value": offset}
        value = {
            "group": self.group,
            "member": self.member_id,
            "epoch": self.epoch,
            "offsets": {_moved(partition): offset},
        }
        request = self.commit_request(self.member_id, self.epoch, partition, offset)
        record = self.work.record
        with (
            record.operation(self.process, "commit", value) as commit,
            record.operation(f"{self.process}-offsets", "set", register) as written,
        ):
            response = yield request, self.commit_version
            if response is not None:
                error = response.topics[0].partitions[0].error_code
                if error not in _UNKNOWN:
                    for call in (commit, written):
                        call.fail() if error else call.ok()

    def commit_request(self, member_id: str, epoch: int, partition: int, offset: int) -> Any:
        """Return the request with which a member commits one offset."""
        found = offset_commit.OffsetCommitRequestPartition(partition, offset)
        topics = [offset_commit.OffsetCommitRequestTopic(MOVED, partitions=[found])]
        return offset_commit.OffsetCommitRequest(self.group, epoch, member_id, self.instance_id, topics=topics)

    def read(self) -> Ask:
        """Read the committed offset of any partition."""
        partition = self.work.choose.randrange(MOVED_PARTITIONS)
        register = f"{self.group} {_moved(partition)}"
        topic = offset_fetch.OffsetFetchRequestTopics(MOVED, partition_indexes=[partition])
        request = offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.OffsetFetchRequestGroup(self.group, topics=[topic])]
        )
        with self.work.record.operation(self.process, "get", {"register": register}) as call:
            response = yield request, 8
            if response is not None and response.groups[0].error_code == 0:
                offset = response.groups[0].topics[0].partitions[0].committed_offset
                call.ok({"register": register, "value": offset if offset >= 0 else None})

    def run(self, operations: int) -> Ask:
        """Take part in the group for a number of operations, then leave."""
        for _ in range(operations):
            yield from self.remain()
            chance = self.work.choose.random()
            if self.owned and chance < 0.5:
                yield from self.commit()
            elif chance < 0.7:
                yield from self.read()
            elif self.owned and chance < 0.8:
                # The member is fenced meanwhile, and does not know it.
                yield SESSION_MS + self.work.choose.randrange(4_000)
                yield from self.commit()
            elif chance < 0.9:
                yield from self.leave()
            yield self.work.choose.randrange(2 * BEAT_MS)
        yield from self.leave()

    def remain(self) -> Ask:
        """Send the request that keeps the member in the group, or lets it join."""
        raise NotImplementedError

    def leave(self) -> Ask:
        """Leave the group."""
        raise NotImplementedError


class Classic(Owner):
    """A member of a classic group. Its leader gives each member every nth partition."""

    group = CLASSIC
    commit_version = 8

    def remain(self) -> Ask:
        if self.epoch >= 0:
            response = yield heartbeat.HeartbeatRequest(self.group, self.epoch, self.member_id, self.instance_id), 3
            if response is None or response.error_code == 0:
                return
            if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS and self.owned:
                yield from self.commit()
            self.give_up()
            if response.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                self.member_id = ""
            self.epoch = -1
        yield from self._join()

    def _join(self) -> Ask:
        protocols = [join_group.JoinGroupRequestProtocol("range", bytes((0, 0, 0, 0, 0, 0, 255, 255, 255, 255)))]
        request = join_group.JoinGroupRequest(
            self.group, SESSION_MS, SESSION_MS, self.member_id, self.instance_id, "consumer", protocols
        )
        joined = yield request, 6
        if joined is None:
            return
        if joined.error_code:
            self.member_id = joined.member_id if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED else ""
            return
        self.member_id, members = joined.member_id, sorted(each.member_id for each in joined.members)
        assignments = [
            sync_group.SyncGroupRequestAssignment(member, bytes(range(MOVED_PARTITIONS)[number :: len(members)]))
            for number, member in enumerate(members)
        ]
        request = sync_group.SyncGroupRequest(
            self.group, joined.generation_id, self.member_id, self.instance_id, assignments=assignments
        )
        synced = yield request, 3
        if synced is not None and synced.error_code == 0:
            self.epoch = joined.generation_id
            self.own(list(synced.assignment))

    def leave(self) -> Ask:
        self.give_up()
        if self.member_id:
            member = leave_group.MemberIdentity(self.member_id, self.instance_id)
            yield leave_group.LeaveGroupRequest(self.group, members=[member]), 4
        self.member_id, self.epoch = "", -1


class Consumer(Owner):
    """A member of a consumer group of KIP-848."""

    group = CONSUMER
    commit_version = 9

    def __init__(self, work: Workload, process: str, instance_id: str | None = None) -> None:
        super().__init__(work, process, instance_id)
        self.member_id = new_member_id(work)
        self.epoch = 0
        self._says_all = True

    def remain(self) -> Ask:
        response = yield self._beat(self.epoch), 1
        if response is None:
            self._says_all = True
            return
        if response.error_code:
            self.give_up()
            self.epoch, self._says_all = 0, True
            return
        is_new, assigned = response.member_epoch != self.epoch, self._assigned(response)
        self.epoch, self._says_all = response.member_epoch, assigned is not None
        if assigned is not None or is_new:
            self.own(self.owned if assigned is None else assigned)

    def _assigned(self, response: Any) -> list[int] | None:
        """Return the partitions of an answer, or None if they are those of the one before."""
        if response.assignment is None:
            return None
        return [each for topic in response.assignment.topic_partitions for each in topic.partitions]

    def _beat(self, epoch: int) -> Any:
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            self.group, self.member_id, epoch, self.instance_id
        )
        if self._says_all or epoch == 0:
            request.rebalance_timeout_ms = SESSION_MS
            request.subscribed_topic_names = [MOVED]
            owned = consumer_group_heartbeat.RequestTopicPartitions(self.work.topic_ids[MOVED], self.owned)
            request.topic_partitions = [owned] if self.owned else []
        return request

    def leave(self) -> Ask:
        self.give_up()
        if self.epoch > 0:
            yield self._leaving(), 1
        self.member_id, self.epoch = new_member_id(self.work), 0

    def _leaving(self) -> Any:
        return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(self.group, self.member_id, _LEAVES)


class Streams(Consumer):
    """A member of a streams group of KIP-1071. It has the active tasks of one subtopology."""

    group = STREAMS

    def _beat(self, epoch: int) -> Any:
        request = streams_group_heartbeat.StreamsGroupHeartbeatRequest(self.group, self.member_id, epoch)
        if self._says_all or epoch == 0:
            request.rebalance_timeout_ms = SESSION_MS
            request.active_tasks = self._tasks(self.owned)
            request.standby_tasks = request.warmup_tasks = self._tasks([])
        if epoch == 0:
            request.topology = streams_group_heartbeat.Topology(
                0, [streams_group_heartbeat.Subtopology(_SUBTOPOLOGY, [MOVED])]
            )
            request.process_id = self.process
        return request

    @staticmethod
    def _tasks(partitions: list[int]) -> Any:
        return [streams_group_heartbeat.RequestTaskIds(_SUBTOPOLOGY, partitions)] if partitions else []

    def _assigned(self, response: Any) -> list[int] | None:
        if response.active_tasks is None:
            return None
        return [each for task in response.active_tasks for each in task.partitions]

    def _leaving(self) -> Any:
        return streams_group_heartbeat.StreamsGroupHeartbeatRequest(self.group, self.member_id, _LEAVES)


def new_member_id(work: Workload) -> str:
    """Return a member id as clients make it."""
    return urlsafe_b64encode(work.choose.randbytes(16)).decode().rstrip("=")


class Sharer:
    """A member of a share group. It accepts, releases, rejects and renews, or ignores acquired records."""

    def __init__(self, work: Workload, process: str, topic: str, partitions: int) -> None:
        self.work = work
        self.process = process
        self._topic = topic
        self._partitions = range(partitions)
        self._member_id = new_member_id(work)
        self._epoch = 0
        self._session = 0
        self._has_all = False
        self._held: dict[int, list[tuple[int, int]]] = {}

    def run(self, operations: int) -> Ask:
        """Take part in the group for a number of operations, then leave."""
        for _ in range(operations):
            yield from self._beat()
            yield from self._fetch()
            chance = self.work.choose.random()
            if chance < 0.15:
                # The member's locks time out.
                yield from self._wait(LOCK_MS + self.work.choose.randrange(500))
            elif chance < 0.2:
                yield from self._wait(SESSION_MS + self.work.choose.randrange(1_000))
            elif chance < 0.25:
                yield from self._end_session()
            for partition in list(self._held):
                yield from self._acknowledge(partition)
            yield from self._wait(self.work.choose.randrange(BEAT_MS))
        yield from self._end_session()
        yield share_group_heartbeat.ShareGroupHeartbeatRequest(SHARE, self._member_id, _LEAVES), 1

    def drain(self) -> Ask:
        """Accept all that is left, until nothing has come for longer than a lock, although it has all partitions."""
        idle_ms = 0
        while idle_ms <= 3 * LOCK_MS:
            yield from self._beat()
            yield from self._fetch()
            idle_ms = 0 if self._held or not self._session or not self._has_all else idle_ms + 500
            for partition in list(self._held):
                yield from self._acknowledge(partition, 1)
            yield from self._wait(500)
        for partition in self._partitions:
            value = {"group": SHARE, "partition": partition_name(self._topic, partition), "from_offset": 0}
            with self.work.record.operation(self.process, "drained", value) as call:
                call.ok()

    def _wait(self, ms: int) -> Ask:
        if (yield ms) is None:
            self._lose_session()

    def _lose_session(self) -> None:
        """Record the end of the member's session: with its connection, or because the server says so."""
        self._held, self._session = {}, 0
        with self.work.record.operation(self.process, "left", {"group": SHARE, "member": self._member_id}) as call:
            call.ok()

    def _beat(self) -> Ask:
        topics = None if self._epoch else [self._topic]
        request = share_group_heartbeat.ShareGroupHeartbeatRequest(SHARE, self._member_id, self._epoch, None, topics)
        response = yield request, 1
        if response is None:
            self._lose_session()
            return
        self._epoch = 0 if response.error_code else response.member_epoch
        if response.assignment is not None:
            given = [each for topic in response.assignment.topic_partitions for each in topic.partitions]
            self._has_all = len(given) == len(self._partitions)

    def _fetch(self) -> Ask:
        wanted = self._partitions if self._session == 0 else ()
        topic = share_fetch.FetchTopic(
            self.work.topic_ids[self._topic], [share_fetch.FetchPartition(each) for each in wanted]
        )
        count = self.work.choose.randint(1, 6)
        request = share_fetch.ShareFetchRequest(
            SHARE, self._member_id, self._session, max_wait_ms=200, min_bytes=1, max_records=count, batch_size=count,
            share_acquire_mode=self.work.choose.randrange(2), topics=[topic] if wanted else [],
        )  # fmt: skip
        with ExitStack() as stack:
            calls = {each: stack.enter_context(self._operation("acquired", each)) for each in self._partitions}
            response = yield request, 2
            if response is not None and response.error_code == 0:
                self._session += 1
                self._acquire(response, calls)
        if response is None or response.error_code:
            self._lose_session()

    def _acquire(self, response: Any, calls: dict[int, Call]) -> None:
        for each in (each for topic in response.responses for each in topic.partitions):
            found = [[one.first_offset, one.last_offset, one.delivery_count] for one in each.acquired_records]
            if found:
                self._held.setdefault(each.partition_index, []).extend((first, last) for first, last, _ in found)
                lock_ms = response.acquisition_lock_timeout_ms
                calls[each.partition_index].ok(self._value(each.partition_index, found) | {"lock_ms": lock_ms})

    def _acknowledge(self, partition: int, kind: int | None = None) -> Ask:
        if kind is None:
            kind = self.work.choose.choices((1, 2, 3, 4), (6, 3, 1, 2))[0]
        if partition not in self._held:
            return
        held = self._held[partition] if kind == 4 else self._held.pop(partition)
        batches = [share_acknowledge.AcknowledgementBatch(first, last, [kind]) for first, last in held]
        topic = share_acknowledge.AcknowledgeTopic(
            self.work.topic_ids[self._topic], [share_acknowledge.AcknowledgePartition(partition, batches)]
        )
        request = share_acknowledge.ShareAcknowledgeRequest(SHARE, self._member_id, self._session, kind == 4, [topic])
        value = self._value(partition, [[first, last, _KINDS[kind]] for first, last in held])
        with self._operation("acknowledged", partition, value) as call:
            response = yield request, 2
            if response is not None and response.error_code == 0:
                self._session += 1
                error = response.responses[0].partitions[0].error_code
                call.fail() if error else call.ok()
                if error:
                    self._held.pop(partition, None)
            elif response is not None:
                call.fail()
        if response is None or response.error_code:
            self._lose_session()

    def _value(self, partition: int, records: list[list[Any]]) -> dict[str, Any]:
        name = partition_name(self._topic, partition)
        return {"group": SHARE, "member": self._member_id, "partition": name, "records": records}

    @contextmanager
    def _operation(self, function: str, partition: int, value: Any = None) -> Iterator[Call]:
        with self.work.record.operation(f"{self.process}-{partition}", function, value) as call:
            yield call

    def _end_session(self) -> Ask:
        if self._session:
            self._lose_session()
            yield share_acknowledge.ShareAcknowledgeRequest(SHARE, self._member_id, _LEAVES, topics=[]), 2
