"""State changes of groups, committed offsets, producers and transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from klamm.wire.api_keys import ApiKey
from klamm_spark.requests.change_parts import Names, StateChanges, numbers, resource_of, succeeded, topic_name
from klamm_spark.requests.resources import Resource

_PRODUCER: Final = ("producer_id", "producer_epoch")
_MEMBER: Final = ("member_id", "instance_id", "generation")
_JOINED: Final = ("member_id", "member_epoch", "instance_id")
_GROUP_AND_TOPIC: Final = ("GROUP", "TOPIC")
_K = ApiKey

GROUP_CHANGES: Final = StateChanges()


# ---- groups and offsets


@GROUP_CHANGES.of(_K.OFFSET_COMMIT, types=_GROUP_AND_TOPIC, attributes=(*_MEMBER, "offset.N"))
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


@GROUP_CHANGES.of(_K.JOIN_GROUP, types=("GROUP",), attributes=(*_MEMBER, "protocol_type"))
def _join_group(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    joined = succeeded(response)
    yield resource_of(
        "GROUP",
        request.group_id,
        ("member_id", response.member_id if response is not None and response.member_id else request.member_id),
        ("instance_id", request.group_instance_id),
        ("protocol_type", request.protocol_type),
        ("generation", joined.generation_id if joined is not None else None),
    )


@GROUP_CHANGES.of(_K.SYNC_GROUP, types=("GROUP",), attributes=(*_MEMBER, "assigned_members"))
def _sync_group(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield resource_of(
        "GROUP",
        request.group_id,
        ("member_id", request.member_id),
        ("instance_id", request.group_instance_id),
        ("generation", request.generation_id),
        ("assigned_members", len(request.assignments) or None),
    )


@GROUP_CHANGES.of(_K.LEAVE_GROUP, types=("GROUP",), attributes=("member_id", "instance_id"))
def _leave_group(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    resource = resource_of("GROUP", request.group_id, ("member_id", request.member_id))
    for member in request.members:
        if member.member_id:
            resource.add("member_id", member.member_id)
        if member.group_instance_id is not None:
            resource.add("instance_id", member.group_instance_id)
    yield resource


@GROUP_CHANGES.of(
    _K.CONSUMER_GROUP_HEARTBEAT, types=_GROUP_AND_TOPIC, attributes=(*_JOINED, "subscribed_topic_regex", "subscribed")
)
@GROUP_CHANGES.of(
    _K.SHARE_GROUP_HEARTBEAT, types=_GROUP_AND_TOPIC, attributes=("member_id", "member_epoch", "subscribed")
)
@GROUP_CHANGES.of(_K.STREAMS_GROUP_HEARTBEAT, types=_GROUP_AND_TOPIC, attributes=(*_JOINED, "subscribed"))
def _group_heartbeat(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    """Yield the resources of heartbeats of the groups of KIP-848, KIP-932 and KIP-1071."""
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


@GROUP_CHANGES.of(
    _K.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, types=("GROUP",), attributes=("member_id", "topology_epoch")
)
def _topology_description(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield resource_of(
        "GROUP", request.group_id, ("member_id", request.member_id), ("topology_epoch", request.topology_epoch)
    )


@GROUP_CHANGES.of(
    _K.INITIALIZE_SHARE_GROUP_STATE,
    _K.WRITE_SHARE_GROUP_STATE,
    _K.DELETE_SHARE_GROUP_STATE,
    types=_GROUP_AND_TOPIC,
    attributes=("partitions",),
)
def _share_state(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield Resource("GROUP", request.group_id)
    for topic in request.topics:
        partitions = numbers(one.partition for one in topic.partitions)
        yield resource_of("TOPIC", topics.name(topic.topic_id), ("partitions", partitions))


# ---- transactions


@GROUP_CHANGES.of(
    _K.INIT_PRODUCER_ID, types=("TRANSACTIONAL_ID", "PRODUCER_ID"), attributes=(*_PRODUCER, "transaction_timeout_ms")
)
def _init_producer_id(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    given = succeeded(response) or request
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


@GROUP_CHANGES.of(
    _K.ADD_PARTITIONS_TO_TXN, types=("TRANSACTIONAL_ID", "TOPIC"), attributes=(*_PRODUCER, "verify_only", "partitions")
)
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


@GROUP_CHANGES.of(_K.ADD_OFFSETS_TO_TXN, types=("TRANSACTIONAL_ID", "GROUP"), attributes=_PRODUCER)
def _add_offsets(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield _transaction(request.transactional_id, request)
    yield Resource("GROUP", request.group_id)


@GROUP_CHANGES.of(_K.END_TXN, types=("TRANSACTIONAL_ID",), attributes=(*_PRODUCER, "committed"))
def _end_txn(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    resource = _transaction(request.transactional_id, request)
    resource.add("committed", "true" if request.committed else "false")
    yield resource


@GROUP_CHANGES.of(
    _K.TXN_OFFSET_COMMIT, types=("TRANSACTIONAL_ID", "GROUP", "TOPIC"), attributes=(*_PRODUCER, *_MEMBER, "offset.N")
)
def _txn_offset_commit(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield _transaction(request.transactional_id, request)
    yield _member(request, request.generation_id_or_member_epoch)
    for topic in request.topics:
        yield _offsets(topic_name(topic, topics), topic)


@GROUP_CHANGES.of(
    _K.WRITE_TXN_MARKERS, types=("PRODUCER_ID", "TOPIC"), attributes=("producer_epoch", "committed", "partitions")
)
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
