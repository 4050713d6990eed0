"""Kafka's internal topics as it creates them: partitions, replicas and configs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.topics.names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from klamm_broker.topics.placement import NewTopic

if TYPE_CHECKING:
    from klamm_broker.internal_topic_settings import InternalTopicSettings


def internal_topic(name: str, settings: InternalTopicSettings) -> NewTopic:
    """Return what the broker creates for one of its internal topics, which belong to no client. Raises KeyError."""
    make = {
        CONSUMER_OFFSETS: _consumer_offsets,
        TRANSACTION_STATE: _transaction_state,
        SHARE_GROUP_STATE: _share_group_state,
    }
    return make[name](settings)


def _consumer_offsets(settings: InternalTopicSettings) -> NewTopic:
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(settings.offsets_topic_segment_bytes),
    }
    factor = settings.offsets_topic_replication_factor
    return NewTopic(settings.offsets_topic_num_partitions, configs, replication_factor=factor)


def _transaction_state(settings: InternalTopicSettings) -> NewTopic:
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(settings.transaction_state_log_min_isr),
        "segment.bytes": str(settings.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }
    factor = settings.transaction_state_log_replication_factor
    return NewTopic(settings.transaction_state_log_num_partitions, configs, replication_factor=factor)


def _share_group_state(settings: InternalTopicSettings) -> NewTopic:
    configs = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": str(settings.share_coordinator_state_topic_min_isr),
        "retention.ms": "-1",
        "segment.bytes": str(settings.share_coordinator_state_topic_segment_bytes),
    }
    factor = settings.share_coordinator_state_topic_replication_factor
    return NewTopic(settings.share_coordinator_state_topic_num_partitions, configs, replication_factor=factor)
