"""Creation of the internal topics of Kafka Streams applications, changelogs and repartition topics, for heartbeats."""

from __future__ import annotations

from collections.abc import Mapping

from klamm import ErrorCode, KafkaError, RequestContext, clipped
from klamm.acl import AclOperation
from klamm_broker.configs.config_registry import check_topic_configs
from klamm_broker.groups.streams.topology import InternalTopic
from klamm_broker.limits.owners import owner_of
from klamm_broker.security.authorization import denied_topics, may_cluster
from klamm_broker.services import BrokerServices
from klamm_broker.topics.placement import NewTopic
from klamm_broker.topics.topic_registry import MAX_PARTITIONS_PER_TOPIC

_NAMED_ERRORS = 3


def create_internal_topics(broker: BrokerServices, context: RequestContext, topics: Mapping[str, InternalTopic]) -> str:
    """Start to create topics, within the client's permissions and quota. Return a text that says why some topics are
    not created.

    This never waits. If a creation fails later, the next heartbeat repeats it.
    """
    if not may_cluster(context, AclOperation.CREATE, log_if_denied=False):
        denied = denied_topics(context, AclOperation.CREATE, topics)
        if denied:
            return f"; Unauthorized to CREATE on topics {', '.join(sorted(denied))}."
    wanted: dict[str, NewTopic] = {}
    errors: list[str] = []
    for name in broker.auto_creation.not_under_way(topics):
        try:
            wanted[name] = _checked(broker, topics[name])._replace(owner=owner_of(context))
            context.charge_mutations(wanted[name].partitions, strict=True)
        except KafkaError as error:
            wanted.pop(name, None)
            errors.append(f"{name} ({error.message})")
            continue
        listener = context.listener
        detail = f"{name}, for {clipped(str(context.principal))} at {context.client_address}"
        listener.services.emit_admin_event("topic_auto_created", detail, listener=listener.name)
    broker.auto_creation.create(wanted)
    if not errors:
        return ""
    more = f" and {len(errors) - _NAMED_ERRORS} more" if len(errors) > _NAMED_ERRORS else ""
    return f"; Creation failed: {', '.join(errors[:_NAMED_ERRORS])}{more}."


def _checked(broker: BrokerServices, topic: InternalTopic) -> NewTopic:
    """Return the topic to create. Raises KafkaError."""
    broker.topics.check_new_name(topic.name)
    overrides = dict(topic.configs)
    check_topic_configs(overrides)
    # Values that are valid separately may contradict each other.
    broker.configs.log_config(overrides)
    if not 0 < topic.partitions <= MAX_PARTITIONS_PER_TOPIC:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"a topic has 1 to {MAX_PARTITIONS_PER_TOPIC} partitions")
    factor = topic.replication_factor
    if factor <= 0:
        factor = broker.settings.default_replication_factor
    broker.topics.placement.check_replication_factor(factor)
    return NewTopic(topic.partitions, overrides, replication_factor=factor)
