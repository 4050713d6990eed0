"""State changes of groups, committed offsets, producers and transactions, described like those in `admin_changes`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from klamm.wire.api_keys import ApiKey
from klamm_spark.requests.change_parts import Names, StateChanges, resource_of, succeeded
from klamm_spark.requests.resources import Resource, numbers

_COMMITTED: Final = (
    "GROUP group_id member_id instance_id=group_instance_id generation=generation_id_or_member_epoch",
    "TOPIC topics.name offset.N=partitions.committed_offset",
)
_TRANSACTION: Final = "TRANSACTIONAL_ID transactional_id producer_id producer_epoch"
_K = ApiKey

GROUP_CHANGES: Final = StateChanges()
GROUP_CHANGES.read(_K.OFFSET_COMMIT, rows=_COMMITTED)
GROUP_CHANGES.read(_K.TXN_OFFSET_COMMIT, rows=(_TRANSACTION, *_COMMITTED))
GROUP_CHANGES.read(_K.ADD_OFFSETS_TO_TXN, rows=(_TRANSACTION, "GROUP group_id"))
GROUP_CHANGES.read(_K.END_TXN, rows=(f"{_TRANSACTION} committed",))
GROUP_CHANGES.read(
    _K.SYNC_GROUP,
    rows=(
        "GROUP group_id member_id instance_id=group_instance_id generation=generation_id assigned_members=#assignments",
    ),
)
GROUP_CHANGES.read(_K.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, rows=("GROUP group_id member_id topology_epoch",))
GROUP_CHANGES.read(
    *(_K.INITIALIZE_SHARE_GROUP_STATE, _K.WRITE_SHARE_GROUP_STATE, _K.DELETE_SHARE_GROUP_STATE),
    rows=("GROUP group_id", "TOPIC topics.topic_id partitions=partitions.partition"),
)


@GROUP_CHANGES.of(_K.JOIN_GROUP, types="GROUP", attributes="member_id instance_id generation protocol_type")
def _join_group(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    joined = succeeded(response)
    yield resource_of(
        "GROUP",
        request.group_id,
        member_id=response.member_id if response is not None and response.member_id else request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        generation=joined.generation_id if joined is not None else None,
    )


@GROUP_CHANGES.of(_K.LEAVE_GROUP, types="GROUP", attributes="member_id instance_id")
def _leave_group(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    resource = resource_of("GROUP", request.group_id, member_id=request.member_id)
    for member in request.members:
        resource.add_given("member_id", member.member_id)
        resource.add_given("instance_id", member.group_instance_id)
    yield resource


@GROUP_CHANGES.of(
    _K.CONSUMER_GROUP_HEARTBEAT,
    types="GROUP TOPIC",
    attributes="member_id member_epoch instance_id subscribed_topic_regex subscribed",
)
@GROUP_CHANGES.of(_K.SHARE_GROUP_HEARTBEAT, types="GROUP TOPIC", attributes="member_id member_epoch subscribed")
@GROUP_CHANGES.of(
    _K.STREAMS_GROUP_HEARTBEAT, types="GROUP TOPIC", attributes="member_id member_epoch instance_id subscribed"
)
def _group_heartbeat(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    """Yield the resources of heartbeats of the groups of KIP-848, KIP-932 and KIP-1071."""
    yield resource_of(
        "GROUP",
        request.group_id,
        member_id=(response.member_id if response is not None else None) or request.member_id,
        member_epoch=request.member_epoch,
        instance_id=getattr(request, "instance_id", None),
        subscribed_topic_regex=getattr(request, "subscribed_topic_regex", None),
    )
    topology = getattr(request, "topology", None)
    subscribed = list(getattr(request, "subscribed_topic_names", None) or ())
    for part in topology.subtopologies if topology is not None else ():
        subscribed += part.source_topics
    for name in subscribed:
        yield resource_of("TOPIC", name, subscribed=True)


@GROUP_CHANGES.of(
    _K.INIT_PRODUCER_ID,
    types="TRANSACTIONAL_ID PRODUCER_ID",
    attributes="producer_id producer_epoch transaction_timeout_ms",
)
def _init_producer_id(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    given = succeeded(response) or request
    producer_id = given.producer_id if given.producer_id >= 0 else None
    epoch = given.producer_epoch if given.producer_epoch >= 0 else None
    name, timeout_ms = request.transactional_id, request.transaction_timeout_ms
    kind = "TRANSACTIONAL_ID"
    if name is None:
        kind, name, timeout_ms = "PRODUCER_ID", "" if producer_id is None else str(producer_id), None
    yield resource_of(kind, name, producer_id=producer_id, producer_epoch=epoch, transaction_timeout_ms=timeout_ms)


@GROUP_CHANGES.of(
    _K.ADD_PARTITIONS_TO_TXN,
    types="TRANSACTIONAL_ID TOPIC",
    attributes="producer_id producer_epoch verify_only partitions",
)
def _add_partitions(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    if request.v3_and_below_transactional_id:
        yield resource_of(
            "TRANSACTIONAL_ID",
            request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
        )
    yield from _with_partitions(request.v3_and_below_topics)
    for one in request.transactions:
        yield resource_of(
            "TRANSACTIONAL_ID",
            one.transactional_id,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            verify_only=one.verify_only or None,
        )
        yield from _with_partitions(one.topics)


def _with_partitions(topics: Any) -> Iterator[Resource]:
    for topic in topics:
        yield resource_of("TOPIC", topic.name, partitions=numbers(topic.partitions))


@GROUP_CHANGES.of(_K.WRITE_TXN_MARKERS, types="PRODUCER_ID TOPIC", attributes="producer_epoch committed partitions")
def _write_markers(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    for marker in request.markers:
        yield resource_of(
            "PRODUCER_ID",
            str(marker.producer_id),
            producer_epoch=marker.producer_epoch,
            committed=marker.transaction_result,
        )
        for topic in marker.topics:
            yield resource_of("TOPIC", topic.name, partitions=numbers(topic.partition_indexes))
