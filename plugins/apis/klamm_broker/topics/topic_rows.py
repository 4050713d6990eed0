"""The rows of topics in the store: statements that add, change and remove them, for `TopicRegistry`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klamm_broker.limits.owners import TOPICS as OWNERS
from klamm_broker.storage.config_rows import delete_configs, replace_configs
from klamm_broker.storage.store import Statement
from klamm_broker.topics.leadership import delete_leaderships, first_leadership
from klamm_broker.topics.placement import NewTopic, ReplicaPlacement
from klamm_broker.topics.topic import Partition, Topic

TOPIC_RESOURCE: Final = 2
"""`ConfigResource.Type.TOPIC`, as in the store's table `configs`."""

DELETION: Final = "deleted-topic/"
"""Key prefix of rows in the store's table `cluster`. The rest of the key is the id, in hex, of a deleted topic whose
directories may still exist.
"""


def insert_topic(placement: ReplicaPlacement, name: str, topic_id: bytes, wanted: NewTopic) -> list[Statement]:
    """Return the statements that add a topic with its configs and leaderships."""
    return [
        ("INSERT INTO topics (name, id, partitions) VALUES (?, ?, ?)", (name, topic_id, wanted.partitions)),
        *([OWNERS.put(name, wanted.owner)] if wanted.owner else ()),
        *replace_configs(TOPIC_RESOURCE, name, wanted.overrides),
        *placement.put(topic_id, map(first_leadership, wanted.replicas)),
    ]


def delete_topic(topic: Topic) -> list[Statement]:
    """Return the statements that delete a topic with all its rows, and note that its directories must be removed."""
    return [
        ("DELETE FROM topics WHERE name = ?", (topic.name,)),
        OWNERS.delete(topic.name),
        delete_configs(TOPIC_RESOURCE, topic.name),
        ("DELETE FROM offsets WHERE topic = ?", (topic.name,)),
        ("DELETE FROM pending_offsets WHERE topic = ?", (topic.name,)),
        delete_leaderships(topic.id),
        ("INSERT INTO cluster (key, value) VALUES (?, ?)", (DELETION + topic.id.hex(), topic.name)),
    ]


def grow_topic(placement: ReplicaPlacement, topic: Topic, partitions: Sequence[Partition]) -> list[Statement]:
    """Return the statements that let a topic grow to these partitions."""
    return [
        ("UPDATE topics SET partitions = ? WHERE name = ?", (len(partitions), topic.name)),
        *placement.put(topic.id, (each.leadership for each in partitions)),
    ]


def directories_gone(topic_id: bytes) -> Statement:
    """Return the statement that deletes the row of a deleted topic once its directories are removed."""
    return ("DELETE FROM cluster WHERE key = ?", (DELETION + topic_id.hex(),))
