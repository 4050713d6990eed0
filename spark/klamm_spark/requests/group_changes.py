"""State changes of groups, committed offsets, producers and transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from klamm.wire.api_keys import ApiKey
from klamm_spark.requests.change_parts import Names, StateChange, numbers, resource_of, topic_name
from klamm_spark.requests.resources import Resource

# ---- groups and offsets


def _offset_commit(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield _member(request, request.generation_id_or_member_epoch)
    for topic in request.topics:
        yield _offsets(topic_name(topic, topics), topic)


def _member(request: Any, generation: int) -> Resource:
    return resource_of(
        "GROUP",
        request.group_id,
        ("member_id", request.member_id),
        ("instance_id", request.group_instance_id),
        ("generation", generation),
    )


def _offsets(name: str, topic: Any) -> Resource:
    offsets = ((f"offset.{one.partition_index}", one.committed_offset) for one in topic.partitions)
    return resource_of("TOPIC", name, *offsets)


def _offset_delete(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield Resource("GROUP", request.group_id)
    for topic in request.topics:
        partitions = numbers(one.partition_index for one in topic.partitions)
        yield resource_of("TOPIC", topic.name, ("partitions", partitions))


def _join_group(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    joined = response if response is not None and response.error_code == 0 else None
    yield resource_of(
        "GROUP",
        request.group_id,
        ("member_id", response.member_id if response is not None and response.member_id else request.member_id),
        ("instance_id", request.group_instance_id),
        ("protocol_type", request.protocol_type),
        ("generation", joined.generation_id if joined is not None else None),
    )


def _sync_group(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield resource_of(
        "GROUP",
        request.group_id,
        ("member_id", request.member_id),
        ("instance_id", request.group_instance_id),
        ("generation", request.generation_id),
        ("assigned_members", len(request.assignments) or None),
    )


def _leave_group(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    resource = resource_of("GROUP", request.group_id, ("member_id", request.member_id))
    for member in request.members:
        if member.member_id:
            resource.add("member_id", member.member_id)
        if member.group_instance_id is not None:
            resource.add("instance_id", member.group_instance_id)
    yield resource


def _delete_groups(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    for name in request.groups_names:
        yield Resource("GROUP", name)


def _group_heartbeat(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    """Of the groups of KIP-848, KIP-932 and KIP-1071."""
    yield resource_of(
        "GROUP",
        request.group_id,
        ("member_id", (response.member_id if response is not None else None) or request.member_id),
        ("member_epoch", request.member_epoch),
        ("instance_id", getattr(request, "instance_id", None)),
        ("subscribed_topic_regex", getattr(request, "subscribed_topic_regex", None)),
    )
    topology = getattr(request, "topology", None)
    subscribed = list(getattr(request, "subscribed_topic_names", None) or ())
    for part in topology.subtopologies if topology is not None else ():
        subscribed += part.source_topics
    for name in subscribed:
        yield resource_of("TOPIC", name, ("subscribed", "true"))


def _alter_share_offsets(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield Resource("GROUP", request.group_id)
    for topic in request.topics:
        offsets = ((f"offset.{one.partition_index}", one.start_offset) for one in topic.partitions)
        yield resource_of("TOPIC", topic.topic_name, *offsets)


def _delete_share_offsets(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield Resource("GROUP", request.group_id)
    for topic in request.topics:
        yield Resource("TOPIC", topic.topic_name)


def _share_state(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield Resource("GROUP", request.group_id)
    for topic in request.topics:
        partitions = numbers(one.partition for one in topic.partitions)
        yield resource_of("TOPIC", topics.name(topic.topic_id), ("partitions", partitions))


# ---- transactions


def _init_producer_id(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    given = response if response is not None and response.error_code == 0 else request
    producer = (
        ("producer_id", given.producer_id if given.producer_id >= 0 else None),
        ("producer_epoch", given.producer_epoch if given.producer_epoch >= 0 else None),
    )
    if request.transactional_id is None:
        yield resource_of("PRODUCER_ID", str(given.producer_id) if given.producer_id >= 0 else "", *producer)
    else:
        timeout = ("transaction_timeout_ms", request.transaction_timeout_ms)
        yield resource_of("TRANSACTIONAL_ID", request.transactional_id, *producer, timeout)


def _transaction(name: str | None, item: Any) -> Resource:
    epochs = (("producer_id", item.producer_id), ("producer_epoch", item.producer_epoch))
    return resource_of("TRANSACTIONAL_ID", name, *epochs)


def _add_partitions(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    if request.v3_and_below_transactional_id:
        yield resource_of(
            "TRANSACTIONAL_ID",
            request.v3_and_below_transactional_id,
            ("producer_id", request.v3_and_below_producer_id),
            ("producer_epoch", request.v3_and_below_producer_epoch),
        )
    for topic in request.v3_and_below_topics:
        yield resource_of("TOPIC", topic.name, ("partitions", numbers(topic.partitions)))
    for one in request.transactions:
        resource = _transaction(one.transactional_id, one)
        if one.verify_only:
            resource.add("verify_only", "true")
        yield resource
        for topic in one.topics:
            yield resource_of("TOPIC", topic.name, ("partitions", numbers(topic.partitions)))


def _add_offsets(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield _transaction(request.transactional_id, request)
    yield Resource("GROUP", request.group_id)


def _end_txn(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    resource = _transaction(request.transactional_id, request)
    resource.add("committed", "true" if request.committed else "false")
    yield resource


def _txn_offset_commit(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield _transaction(request.transactional_id, request)
    yield _member(request, request.generation_id)
    for topic in request.topics:
        yield _offsets(topic.name, topic)


def _write_markers(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    for marker in request.markers:
        yield resource_of(
            "PRODUCER_ID",
            str(marker.producer_id),
            ("producer_epoch", marker.producer_epoch),
            ("committed", "true" if marker.transaction_result else "false"),
        )
        for topic in marker.topics:
            yield resource_of("TOPIC", topic.name, ("partitions", numbers(topic.partition_indexes)))


_PRODUCER: Final = ("producer_id", "producer_epoch")
_MEMBER: Final = ("member_id", "instance_id", "generation")
_JOINED: Final = ("member_id", "member_epoch", "instance_id")
_GROUP_AND_TOPIC: Final = ("GROUP", "TOPIC")
_K = ApiKey

GROUP_CHANGES: Final[dict[ApiKey, StateChange]] = {
    _K.OFFSET_COMMIT: StateChange(_GROUP_AND_TOPIC, (*_MEMBER, "offset.N"), _offset_commit),
    _K.OFFSET_DELETE: StateChange(_GROUP_AND_TOPIC, ("partitions",), _offset_delete),
    _K.JOIN_GROUP: StateChange(("GROUP",), (*_MEMBER, "protocol_type"), _join_group),
    _K.SYNC_GROUP: StateChange(("GROUP",), (*_MEMBER, "assigned_members"), _sync_group),
    _K.LEAVE_GROUP: StateChange(("GROUP",), ("member_id", "instance_id"), _leave_group),
    _K.DELETE_GROUPS: StateChange(("GROUP",), (), _delete_groups),
    _K.CONSUMER_GROUP_HEARTBEAT: StateChange(
        _GROUP_AND_TOPIC, (*_JOINED, "subscribed_topic_regex", "subscribed"), _group_heartbeat
    ),
    _K.SHARE_GROUP_HEARTBEAT: StateChange(
        _GROUP_AND_TOPIC, ("member_id", "member_epoch", "subscribed"), _group_heartbeat
    ),
    _K.STREAMS_GROUP_HEARTBEAT: StateChange(_GROUP_AND_TOPIC, (*_JOINED, "subscribed"), _group_heartbeat),
    _K.ALTER_SHARE_GROUP_OFFSETS: StateChange(_GROUP_AND_TOPIC, ("offset.N",), _alter_share_offsets),
    _K.DELETE_SHARE_GROUP_OFFSETS: StateChange(_GROUP_AND_TOPIC, (), _delete_share_offsets),
    _K.INITIALIZE_SHARE_GROUP_STATE: StateChange(_GROUP_AND_TOPIC, ("partitions",), _share_state),
    _K.WRITE_SHARE_GROUP_STATE: StateChange(_GROUP_AND_TOPIC, ("partitions",), _share_state),
    _K.DELETE_SHARE_GROUP_STATE: StateChange(_GROUP_AND_TOPIC, ("partitions",), _share_state),
    _K.INIT_PRODUCER_ID: StateChange(
        ("TRANSACTIONAL_ID", "PRODUCER_ID"), (*_PRODUCER, "transaction_timeout_ms"), _init_producer_id
    ),
    _K.ADD_PARTITIONS_TO_TXN: StateChange(
        ("TRANSACTIONAL_ID", "TOPIC"), (*_PRODUCER, "verify_only", "partitions"), _add_partitions
    ),
    _K.ADD_OFFSETS_TO_TXN: StateChange(("TRANSACTIONAL_ID", "GROUP"), _PRODUCER, _add_offsets),
    _K.END_TXN: StateChange(("TRANSACTIONAL_ID",), (*_PRODUCER, "committed"), _end_txn),
    _K.TXN_OFFSET_COMMIT: StateChange(
        ("TRANSACTIONAL_ID", "GROUP", "TOPIC"), (*_PRODUCER, *_MEMBER, "offset.N"), _txn_offset_commit
    ),
    _K.WRITE_TXN_MARKERS: StateChange(
        ("PRODUCER_ID", "TOPIC"), ("producer_epoch", "committed", "partitions"), _write_markers
    ),
}
