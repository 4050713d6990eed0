"""Heartbeats of members of streams groups with consistent fields, and valid and invalid topologies."""

from __future__ import annotations

from typing import Any, Final

from klamm.wire.messages.streams_group_heartbeat import CopartitionGroup, KeyValue, Subtopology, TopicInfo, Topology
from tests.interop.beside_kafka.random_values import TOPICS, Chooser, Made, Ref

HEARTBEAT: Final = "StreamsGroupHeartbeat"
ROLES: Final = ("active_tasks", "standby_tasks", "warmup_tasks")
_A, _B = TOPICS
_AS_THEY_COME: Final = 0.08
"""The share of heartbeats whose fields contradict each other."""


def _topic(name: str, partitions: int = 0, replication_factor: int = 0, **configs: str) -> Made:
    pairs = [Made(KeyValue, {"key": key.replace("_", "."), "value": value}) for key, value in configs.items()]
    fields = {"name": name, "partitions": partitions, "replication_factor": replication_factor}
    return Made(TopicInfo, fields | {"topic_configs": pairs})


def _part(name: str, *sources: str, **fields: Any) -> Made:
    return Made(Subtopology, {"subtopology_id": name, "source_topics": [*sources], **fields})


def _together(*places: int) -> list[Made]:
    return [Made(CopartitionGroup, {"source_topics": [*places]})]


def _of(*parts: Made, epoch: int = 0) -> Made:
    return Made(Topology, {"epoch": epoch, "subtopologies": [*parts]})


def _usual(group: str) -> Made:
    """Return the topology of a group's members."""
    if group.endswith("g"):
        return _of(_part("0", _A))
    through = f"{group}-through"
    return _of(
        _part("0", _A, repartition_sink_topics=[through]),
        _part(
            "1",
            repartition_source_topics=[_topic(through)],
            state_changelog_topics=[_topic(f"{group}-changelog", 0, 1, cleanup_policy="compact")],
        ),
    )


def _odd(group: str) -> tuple[Made, ...]:
    through = f"{group}-other"
    return (
        _of(_part("0", _A, _B, copartition_groups=_together(0, 1))),
        _of(_part("0", _A), epoch=1),
        _of(_part("0", "{p}none")),
        _of(_part("0", "a b")),
        _of(_part("0", "")),
        _of(_part("0", _A, source_topic_regex=["t.*"])),
        _of(_part("0", _A, state_changelog_topics=[_topic(f"{through}-log", 3)])),
        _of(_part("0", _A, state_changelog_topics=[_topic(f"{through}-more", 0, 7)])),
        _of(_part("0", _A, state_changelog_topics=[_topic(f"{through}-bad", 0, 1, bogus_config="1")])),
        _of(_part("0", _A, state_changelog_topics=[_topic(f"{through}-wrong", 0, 1, retention_ms="much")])),
        _of(_part("0", _A, repartition_source_topics=[_topic(through)])),
        _of(_part("0", _A, repartition_sink_topics=[through])),
        _of(_part("0", _A), _part("1", _B)),
        _of(_part("0")),
        _of(),
    )


def heartbeat(made: Made, c: Chooser) -> Made:
    """Return a heartbeat as a member sends it: it joins with a topology, or it stays and reports its tasks."""
    if c.rng.random() < _AS_THEY_COME:
        return made
    key = c.group + c.label
    fields = dict(made.fields, group_id=c.one(c.group, odd=("{p}none", "")))
    fields |= {"client_tags": None, "task_offsets": None, "task_end_offsets": None, "user_endpoint": None}
    fields["shutdown_application"] = c.one(False, odd=(False, True))
    if c.rng.random() < 0.35:
        fields |= dict.fromkeys(ROLES, []) | {"client_tags": []}
        fields |= {"member_epoch": 0, "topology": c.one(_usual(c.group), odd=_odd(c.group))}
        fields["rebalance_timeout_ms"] = c.one(10_000, odd=(-1, 0))
        fields["process_id"] = c.one(f"p-{c.label}", "p", odd=(None, ""))
        return Made(made.kind, fields)
    epoch = Ref("member_epoch", key)
    fields["member_epoch"] = c.one(*[epoch] * 8, -1, odd=(epoch._replace(plus=1), epoch._replace(plus=-1), -2, -3, 99))
    fields |= {"topology": None, "rebalance_timeout_ms": -1, "process_id": None}
    has_tasks = c.rng.random() < 0.7
    fields |= {role: Ref(role, key) if has_tasks else None for role in ROLES}
    return Made(made.kind, fields)
