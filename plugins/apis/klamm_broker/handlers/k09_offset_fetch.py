"""OffsetFetch, versions 1 to 10.

Returns the committed offsets of the partitions in the request, or (from v2, with a null list) of the whole group. From
v8 for many groups at a time, from v10 by topic id. Follows `KafkaApis.handleOffsetFetchRequest` and
`OffsetMetadataManager.fetchOffsets`.

- Nothing committed, no such partition, no such group: offset -1 and no error.
- `require_stable` (v7, KIP-447) waits for unfinished commits; an offset that an open transaction may change:
  UNSTABLE_OFFSET_COMMIT.
- A topic id that does not exist: UNKNOWN_TOPIC_ID. A request for all positions leaves out topics without an id.
- Authorization: DESCRIBE on the group and on each topic; a request for all positions leaves out topics that the client
  may not describe.
- Member id and epoch (v9) are checked for consumer and streams groups: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH (a
  member that speaks the classic protocol: ILLEGAL_GENERATION).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klamm import ErrorCode, Pending, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from klamm_broker.groups.group import CommittedOffset
from klamm_broker.groups.offsets import UNSTABLE, FetchedOffsets, TopicPartitions
from klamm_broker.security.authorization import may_group, may_topic, require_group, shows
from klamm_broker.services import BrokerServices

_FIRST_VERSION_WITH_GROUPS = 8
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_NO_OFFSET = -1
_OFFSET_BYTES = 16


def fetch_offsets(broker: BrokerServices, request: OffsetFetchRequest, context: RequestContext) -> Pending:
    """Return committed offsets. Raises KafkaError for a single group that may not be described. Runs on the processor's
    thread, so it must not block.
    """
    if context.api_version < _FIRST_VERSION_WITH_GROUPS:
        _fetch_of_one_group(broker, request, context)
    else:
        _fetch_of_groups(broker, request, context)
    return context.later()


def _fetch_of_one_group(broker: BrokerServices, request: OffsetFetchRequest, context: RequestContext) -> None:
    require_group(context, AclOperation.DESCRIBE, request.group_id)
    broker.cluster.check_coordinates(request.group_id)
    asked: list[tuple[str, Sequence[int]]] | None = None
    denied: list[OffsetFetchResponseTopic] = []
    if request.topics is not None:
        asked = []
        for each in request.topics:
            if may_topic(context, AclOperation.DESCRIBE, each.name):
                asked.append((each.name, each.partition_indexes))
            else:
                denied.append(_denied_topic(each.name, each.partition_indexes))

    if asked is None:
        context.expect_answer(broker.groups.offsets.count(request.group_id), _OFFSET_BYTES)

    def response(fetched: Sequence[FetchedOffsets]) -> OffsetFetchResponse:
        offsets = fetched[0]
        context.check_answer_bytes(_metadata_bytes(offsets, asked))
        visible = asked if asked is not None else _visible(context, offsets)
        topics = denied + [
            OffsetFetchResponseTopic(
                name,
                [
                    OffsetFetchResponsePartition(
                        index,
                        committed.offset if committed is not None else _NO_OFFSET,
                        committed.leader_epoch if committed is not None else -1,
                        committed.metadata if committed is not None else "",
                        _error_of(committed),
                    )
                    for index in indexes
                    for committed in (offsets[name][index],)
                ],
            )
            for name, indexes in visible
        ]
        return OffsetFetchResponse(topics=topics)

    def reply(fetched: Sequence[FetchedOffsets]) -> None:
        context.answer(lambda: response(fetched))

    wanted = None if asked is None else _merged(asked)
    broker.groups.offsets.fetch([(request.group_id, wanted)], reply, require_stable=request.require_stable)


def _visible(context: RequestContext, offsets: FetchedOffsets) -> list[tuple[str, Sequence[int]]]:
    """Return the committed partitions whose topics the client may describe."""
    return [
        (name, list(by_partition))
        for name, by_partition in offsets.items()
        if shows(context, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    ]


def _merged(asked: Sequence[tuple[str, Sequence[int]]]) -> dict[str, list[int]]:
    """Return each topic once. A request may name a topic several times, and each entry is answered separately."""
    partitions: dict[str, list[int]] = {}
    for name, indexes in asked:
        partitions.setdefault(name, []).extend(indexes)
    return partitions


def _denied_topic(name: str, indexes: Sequence[int]) -> OffsetFetchResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return OffsetFetchResponseTopic(
        name, [OffsetFetchResponsePartition(index, _NO_OFFSET, -1, "", code) for index in indexes]
    )


def _fetch_of_groups(broker: BrokerServices, request: OffsetFetchRequest, context: RequestContext) -> None:
    by_id = context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS
    asked: list[list[tuple[str, Sequence[int]]] | None] = []
    wanted: list[tuple[str, TopicPartitions | None]] = []
    unknown: list[list[OffsetFetchResponseTopics]] = []
    denied: dict[int, OffsetFetchResponseGroup] = {}
    for position, group in enumerate(request.groups):
        if not may_group(context, AclOperation.DESCRIBE, group.group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            denied[position] = OffsetFetchResponseGroup(group.group_id, error_code=code)
            continue
        code = ErrorCode.NOT_COORDINATOR
        if broker.cluster.coordinates(group.group_id):
            code = broker.groups.offsets.check_fetch(group.group_id, group.member_id, group.member_epoch)
        if code is not ErrorCode.NONE:
            denied[position] = OffsetFetchResponseGroup(group.group_id, error_code=code)
            continue
        named, not_found = _named_partitions(broker, context, group, by_id)
        asked.append(named)
        wanted.append((group.group_id, None if named is None else _merged(named)))
        unknown.append(not_found)

    every = (group_id for group_id, partitions in wanted if partitions is None)
    context.expect_answer(sum(map(broker.groups.offsets.count, every)), _OFFSET_BYTES)

    def response(fetched: Sequence[FetchedOffsets]) -> OffsetFetchResponse:
        context.check_answer_bytes(sum(map(_metadata_bytes, fetched, asked)))
        answered = []
        for (group_id, _), named, offsets, not_found in zip(wanted, asked, fetched, unknown, strict=True):
            topics = [
                OffsetFetchResponseTopics(name, topic_id, _partitions(offsets[name], indexes))
                for name, indexes in (named if named is not None else _visible(context, offsets))
                if (topic_id := _topic_id(broker, name) if by_id else b"") is not None
            ]
            answered.append(OffsetFetchResponseGroup(group_id, topics + not_found))
        others = iter(answered)
        count = len(answered) + len(denied)
        groups = [denied.get(position) or next(others) for position in range(count)]
        return OffsetFetchResponse(groups=groups)

    def reply(fetched: Sequence[FetchedOffsets]) -> None:
        context.answer(lambda: response(fetched))

    broker.groups.offsets.fetch(wanted, reply, require_stable=request.require_stable)


def _metadata_bytes(offsets: FetchedOffsets, asked: Sequence[tuple[str, Sequence[int]]] | None) -> int:
    """Return the size of these offsets' metadata in the response. It counts once for each time that the request names
    the partition.
    """
    if asked is None:
        asked = [(name, list(by_partition)) for name, by_partition in offsets.items()]
    return sum(
        len(committed.metadata)
        for name, indexes in asked
        for index in indexes
        if (committed := offsets[name][index]) is not None
    )


def _named_partitions(
    broker: BrokerServices, context: RequestContext, group: OffsetFetchRequestGroup, by_id: bool
) -> tuple[list[tuple[str, Sequence[int]]] | None, list[OffsetFetchResponseTopics]]:
    """Return the requested topics by name, and the error responses for topics that do not exist or may not be
    described.
    """
    if group.topics is None:
        return None, []
    named: list[tuple[str, Sequence[int]]] = []
    not_found: list[OffsetFetchResponseTopics] = []
    for requested in group.topics:
        name: str | None = requested.name
        if by_id:
            topic = broker.topics.by_id(requested.topic_id)
            name = topic.name if topic is not None else None
        if name is None:
            not_found.append(_no_offsets(requested, ErrorCode.UNKNOWN_TOPIC_ID))
        elif not may_topic(context, AclOperation.DESCRIBE, name):
            not_found.append(_no_offsets(requested, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        else:
            named.append((name, requested.partition_indexes))
    return named, not_found


def _no_offsets(requested: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        requested.name,
        requested.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(index, _NO_OFFSET, error_code=code) for index in requested.partition_indexes
        ],
    )


def _topic_id(broker: BrokerServices, name: str) -> bytes | None:
    topic = broker.topics.get(name)
    return topic.id if topic is not None else None


def _partitions(
    by_partition: Mapping[int, CommittedOffset | None], indexes: Sequence[int]
) -> list[OffsetFetchResponsePartitions]:
    return [
        OffsetFetchResponsePartitions(
            index, committed.offset, committed.leader_epoch, committed.metadata, _error_of(committed)
        )
        if committed is not None
        else OffsetFetchResponsePartitions(index, _NO_OFFSET)
        for index in indexes
        for committed in (by_partition[index],)
    ]


def _error_of(committed: CommittedOffset | None) -> ErrorCode:
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if committed is UNSTABLE else ErrorCode.NONE
