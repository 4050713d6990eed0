"""Acknowledgements of a request: checks, and the wait until they are durable.

Follows `KafkaApis.handleAcknowledgements` and its validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from klamm import ErrorCode, RequestContext
from klamm.acl import AclOperation
from klamm_broker.configs.group_config_keys import SHARE_RENEW_ENABLE
from klamm_broker.handlers.countdown import call_after
from klamm_broker.security.authorization import may_topic
from klamm_broker.services import BrokerServices
from klamm_broker.share.live_partition import Outcome
from klamm_broker.share.partition import Acknowledgement
from klamm_broker.share.record_state import AcknowledgeType
from klamm_broker.share.sessions import SessionKey, TopicPartition
from klamm_broker.topics.topic import Partition, Topic


class AcknowledgedPartition(NamedTuple):
    """A request's acknowledgements for one partition; `batches` are messages with offsets and types."""

    topic_id: bytes
    partition: int
    batches: Sequence[Any]


def find_partition(
    broker: BrokerServices, context: RequestContext, topic_id: bytes, index: int
) -> tuple[Partition | None, ErrorCode]:
    """Return a partition that the client may read, or None and the reason."""
    topic = broker.topics.by_id(topic_id)
    if topic is None:
        return None, ErrorCode.UNKNOWN_TOPIC_ID
    if not may_topic(context, AclOperation.READ, topic.name):
        return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partition = topic.partition(index)
    if partition is not None and partition.leadership.leader_id != broker.cluster.node_id:
        return None, ErrorCode.NOT_LEADER_OR_FOLLOWER
    return partition, ErrorCode.NONE if partition is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def acknowledge(
    broker: BrokerServices,
    context: RequestContext,
    key: SessionKey,
    wanted: Iterable[AcknowledgedPartition],
    then: Callable[[dict[TopicPartition, Outcome]], None],
    *,
    may_renew: bool,
) -> None:
    """Acknowledge records in each partition. `then` is called once, on any thread, when all results are durable."""
    outcomes: dict[TopicPartition, Outcome] = {}
    topics: set[Topic] = set()
    started: list[tuple[TopicPartition, Callable[[Callable[[Outcome], None]], None]]] = []
    for each in wanted:
        place = each.topic_id, each.partition
        partition, error = find_partition(broker, context, *place)
        if partition is None:
            outcomes[place] = Outcome(error)
            continue
        if not each.batches:
            continue
        topics.add(partition.topic)
        acknowledgements = _checked(each.batches, may_renew)
        live = broker.shares.find(key.group_id, partition.topic, each.partition)
        if acknowledgements is None:
            outcomes[place] = Outcome(ErrorCode.INVALID_REQUEST)
        elif live is None:
            outcomes[place] = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif _renews(acknowledgements) and not broker.group_configs.value(key.group_id, SHARE_RENEW_ENABLE):
            outcomes[place] = Outcome(
                ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group."
            )
        else:
            broker.shares.count(acknowledgements)
            started.append((place, _start_of(live.acknowledge, key.member_id, acknowledgements)))
    for topic in topics:
        topic.traffic.share_acknowledgement_requests += 1

    def finish() -> None:
        failed = {topic_id for (topic_id, _), outcome in outcomes.items() if outcome.error_code}
        for topic in topics:
            topic.traffic.failed_share_acknowledgement_requests += topic.id in failed
        then(outcomes)

    done = call_after(len(started) + 1, finish)
    for place, start in started:
        start(_noting(outcomes, place, done))
    done()


def _start_of(
    method: Callable[[str, Sequence[Acknowledgement], Callable[[Outcome], None]], None],
    member_id: str,
    acknowledgements: Sequence[Acknowledgement],
) -> Callable[[Callable[[Outcome], None]], None]:
    return lambda done: method(member_id, acknowledgements, done)


def _noting(
    outcomes: dict[TopicPartition, Outcome], place: TopicPartition, done: Callable[[], None]
) -> Callable[[Outcome], None]:
    def note(outcome: Outcome) -> None:
        outcomes[place] = outcome
        done()

    return note


def _renews(acknowledgements: Iterable[Acknowledgement]) -> bool:
    return any(AcknowledgeType.RENEW in each.types for each in acknowledgements)


def _checked(batches: Sequence[Any], may_renew: bool) -> list[Acknowledgement] | None:
    """Return the acknowledgements; None if they are out of order, overlap, or have invalid types."""
    last_type = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    end = -1
    found = []
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last or first < end or len(types) not in (1, last - first + 1):
            return None
        if not all(AcknowledgeType.GAP <= kind <= last_type for kind in types):
            return None
        end = last
        found.append(Acknowledgement(first, last, tuple(types)))
    return found


def name_leaders(messages: Any, response: Any, broker: BrokerServices, context: RequestContext) -> None:
    """Add the leaders to a response of ShareFetch or ShareAcknowledge. `messages` is the module with its classes."""
    node_ids = set()
    for topic in response.responses:
        for data in topic.partitions:
            if data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                found = broker.topics.by_id(topic.topic_id)
                partition = found.partition(data.partition_index) if found is not None else None
                if partition is not None:
                    leader_id, epoch, _replicas = partition.leadership
                    data.current_leader = messages.LeaderIdAndEpoch(leader_id, epoch)
                    node_ids.add(leader_id)
    if node_ids:
        nodes = broker.cluster.endpoints_of(node_ids, context.listener)
        response.node_endpoints = [messages.NodeEndpoint(*node) for node in nodes]
