"""Functions that request topics, groups, transactions, quotas and ACLs over Kafka's protocol and return them as JSON.

Each function raises KafkaError if the user may not see the result, and OSError if the listener does not answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from klamm import ErrorCode, KafkaError
from klamm.acl import AclOperation
from klamm.testing import Acls, Admin
from klamm.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from klamm.wire.messages.describe_cluster import DescribeClusterRequest
from klamm.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.wire.messages.list_groups import ListGroupsRequest
from klamm.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.wire.messages.list_transactions import ListTransactionsRequest
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from klamm_console.access import acl_row

_METADATA_VERSION: Final = 8
_OFFSETS_VERSION: Final = 5
EARLIEST: Final = -2
LATEST: Final = -1
"""Times that stand for the first offset and the end of a partition."""
_CLUSTER_VERSION: Final = 0
_CONFIGS_VERSION: Final = 3
_GROUPS_VERSION: Final = 5
_OFFSET_FETCH_VERSION: Final = 8
_LAG_GROUPS: Final = 100
_LAG_PARTITIONS: Final = 2_000
"""Maximum number of groups whose lag is requested for the list, and of their partitions."""
_TRANSACTIONS_VERSION: Final = 0
_QUOTAS_VERSION: Final = 1
_TOPIC_RESOURCE: Final = 2
SHOWN_PARTITIONS: Final = 50
"""Maximum number of partitions whose offsets are requested."""
SHOWN_ROWS: Final = 5_000
"""Maximum number of rows in a list."""
_SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}


def check(error_code: int, message: str | None) -> None:
    """Raise KafkaError for an error code."""
    if error_code:
        raise KafkaError(ErrorCode(error_code), message or "")


def about(admin: Admin) -> dict[str, Any]:
    """Return the cluster's id and nodes, and the rights of the user on the cluster: `may_describe`, `may_alter`."""
    answer = admin.call(DescribeClusterRequest(include_cluster_authorized_operations=True), _CLUSTER_VERSION)
    check(answer.error_code, answer.error_message)
    operations = answer.cluster_authorized_operations
    return {
        "cluster_id": answer.cluster_id,
        "controller_id": answer.controller_id,
        "nodes": [{"id": node.broker_id, "host": node.host, "port": node.port} for node in answer.brokers],
        "may_describe": bool(operations & 1 << AclOperation.DESCRIBE),
        "may_alter": bool(operations & 1 << AclOperation.ALTER),
    }


def topics(admin: Admin) -> list[dict[str, Any]]:
    """Return the topics that the user may describe."""
    answer = admin.call(MetadataRequest(None, allow_auto_topic_creation=False), _METADATA_VERSION)
    rows = [
        {"name": each.name, "partitions": len(each.partitions), "internal": each.is_internal} for each in answer.topics
    ]
    return sorted(rows, key=lambda row: str(row["name"]))[:SHOWN_ROWS]


def metadata_of(admin: Admin, topic: str) -> Any:
    """Return the answer to MetadataRequest for one topic."""
    answer = _metadata(admin, [topic])
    check(answer.topics[0].error_code, topic)
    return answer


def _metadata(admin: Admin, topics: Iterable[str]) -> Any:
    asked = [MetadataRequestTopic(name=each) for each in topics]
    return admin.call(MetadataRequest(asked, allow_auto_topic_creation=False), _METADATA_VERSION)


def topic(admin: Admin, name: str) -> dict[str, Any]:
    """Return a topic's partitions and configs; `configs` is None if the user may not see them."""
    metadata = metadata_of(admin, name)
    listed = sorted(metadata.topics[0].partitions, key=lambda each: int(each.partition_index))
    shown = {(name, each.partition_index) for each in listed[:SHOWN_PARTITIONS]}
    starts, ends = (offsets_of(admin, metadata, shown, timestamp) for timestamp in (EARLIEST, LATEST))
    partitions: list[dict[str, Any]] = []
    for each in listed:
        row = {"partition": each.partition_index, "leader": each.leader_id, "isr": list(each.isr_nodes)}
        if len(partitions) < SHOWN_PARTITIONS:
            row["start_offset"] = starts.get((name, each.partition_index))
            row["end_offset"] = ends.get((name, each.partition_index))
        partitions.append(row)
    return {"name": name, "partitions": partitions[:SHOWN_ROWS], "configs": _configs(admin, name)}


def _configs(admin: Admin, name: str) -> list[dict[str, Any]] | None:
    request = DescribeConfigsRequest([DescribeConfigsResource(_TOPIC_RESOURCE, name, None)])
    (result,) = admin.call(request, _CONFIGS_VERSION).results
    if result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return None
    check(result.error_code, result.error_message)
    return [
        {
            "name": each.name,
            "value": None if each.is_sensitive else each.value,
            "source": _SOURCES.get(each.config_source, ""),
        }
        for each in sorted(result.configs, key=lambda each: str(each.name))
    ]


def groups(admin: Admin) -> list[dict[str, Any]]:
    """Return the groups of all kinds that the user may describe, the first ones with their lag."""
    found: dict[str, dict[str, Any]] = {}
    committed: dict[str, dict[tuple[str, int], int]] = {}
    for node in about(admin)["nodes"]:
        # Each coordinator lists only its own groups.
        address = node["host"], node["port"]
        answer = admin.call_node(address, ListGroupsRequest(), _GROUPS_VERSION)
        check(answer.error_code, None)
        for each in answer.groups:
            found[each.group_id] = {
                "name": each.group_id,
                "state": each.group_state,
                "type": each.group_type,
                "protocol": each.protocol_type,
            }
        listed = sorted(str(each.group_id) for each in answer.groups)
        committed |= _committed(admin, address, listed[: _LAG_GROUPS - len(committed)])
    lags = _lags(admin, committed)
    return [{**found[name], "lag": lags.get(name)} for name in sorted(found)][:SHOWN_ROWS]


def _committed(
    admin: Admin, coordinator: tuple[str, int], names: Iterable[str]
) -> dict[str, dict[tuple[str, int], int]]:
    """Return the committed offsets of groups; a group whose offsets the user may not see has none."""
    asked = [OffsetFetchRequestGroup(name, topics=None) for name in names]
    if not asked:
        return {}
    answer = admin.call_node(coordinator, OffsetFetchRequest(groups=asked), _OFFSET_FETCH_VERSION)
    return {
        each.group_id: {
            (topic.name, one.partition_index): one.committed_offset
            for topic in each.topics
            for one in topic.partitions
            if one.committed_offset >= 0
        }
        for each in answer.groups
        if not each.error_code
    }


def _lags(admin: Admin, committed: Mapping[str, Mapping[tuple[str, int], int]]) -> dict[str, int]:
    """Return the lag of each group whose partitions all have an end, over the first partitions of all groups."""
    wanted: set[tuple[str, int]] = set()
    for partitions in committed.values():
        if len(wanted | partitions.keys()) <= _LAG_PARTITIONS:
            wanted |= partitions.keys()
    if not wanted:
        return {}
    ends = offsets_of(admin, _metadata(admin, sorted({topic for topic, _ in wanted})), wanted, LATEST)
    return {
        name: sum(max(0, ends[each] - offset) for each, offset in partitions.items())
        for name, partitions in committed.items()
        if partitions and partitions.keys() <= ends.keys()
    }


def group(admin: Admin, name: str) -> dict[str, Any]:
    """Return a group's members, and for each partition the committed offset, the end of the log and the lag."""
    found = admin.group(name)
    try:
        members = found.members()
    except KafkaError as error:
        if error.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        members = []
    committed = found.committed()
    shown = set(sorted(committed)[:SHOWN_PARTITIONS])
    metadata = _metadata(admin, sorted({name for name, _ in shown}))
    ends = offsets_of(admin, metadata, shown, LATEST)
    rows: list[dict[str, Any]] = []
    for (topic_name, index), offset in sorted(committed.items()):
        row: dict[str, Any] = {"topic": topic_name, "partition": index, "committed": offset}
        if len(rows) < SHOWN_PARTITIONS:
            row["end_offset"] = ends.get((topic_name, index))
            row["lag"] = None if row["end_offset"] is None else row["end_offset"] - offset
        rows.append(row)
    return {
        "name": name,
        "state": found.state,
        "members": [
            {
                "member_id": each.member_id,
                "client_id": each.client_id,
                "instance_id": each.instance_id,
                "partitions": [f"{topic_name}-{index}" for topic_name, index in each.partitions],
            }
            for each in members[:SHOWN_ROWS]
        ],
        "offsets": rows[:SHOWN_ROWS],
    }


def offsets_of(
    admin: Admin, metadata: Any, wanted: Collection[tuple[str, int]], timestamp_ms: int
) -> dict[tuple[str, int], int]:
    """Return offsets of partitions, with a request to each leader. Those that have no answer are left out."""
    nodes = {each.node_id: (each.host, each.port) for each in metadata.brokers}
    leaders: dict[tuple[str, int], dict[str, list[ListOffsetsPartition]]] = {}
    for topic in metadata.topics:
        for each in topic.partitions:
            if each.leader_id in nodes and (topic.name, each.partition_index) in wanted:
                asked = leaders.setdefault(nodes[each.leader_id], {}).setdefault(topic.name, [])
                asked.append(ListOffsetsPartition(each.partition_index, timestamp=timestamp_ms))
    found: dict[tuple[str, int], int] = {}
    for address, topics in leaders.items():
        request = ListOffsetsRequest(-1, 0, topics=[ListOffsetsTopic(name, asked) for name, asked in topics.items()])
        try:
            answer = admin.call_node(address, request, _OFFSETS_VERSION)
        except (OSError, EOFError):
            continue
        for topic in answer.topics:
            for each in topic.partitions:
                if not each.error_code:
                    found[topic.name, each.partition_index] = each.offset
    return found


def transactions(admin: Admin) -> list[dict[str, Any]]:
    """Return the transactions that the user may describe."""
    rows = []
    for node in about(admin)["nodes"]:
        answer = admin.call_node((node["host"], node["port"]), ListTransactionsRequest(), _TRANSACTIONS_VERSION)
        check(answer.error_code, None)
        rows += [
            {
                "transactional_id": each.transactional_id,
                "producer_id": str(each.producer_id),
                "state": each.transaction_state,
            }
            for each in answer.transaction_states
        ]
    return sorted(rows, key=lambda row: str(row["transactional_id"]))[:SHOWN_ROWS]


def quotas(admin: Admin) -> list[dict[str, Any]]:
    """Return the quotas of users, clients and addresses."""
    answer = admin.call(DescribeClientQuotasRequest([]), _QUOTAS_VERSION)
    check(answer.error_code, answer.error_message)
    return [
        {
            "entity": ", ".join(
                f"{part.entity_type} {'(default)' if part.entity_name is None else part.entity_name}"
                for part in each.entity
            ),
            # As `alter_quota` takes it.
            "of": {part.entity_type.replace("-", "_"): part.entity_name for part in each.entity},
            "quotas": {value.key: value.value for value in each.values},
        }
        for each in (answer.entries or ())[:SHOWN_ROWS]
    ]


def acls(admin: Admin) -> list[dict[str, Any]]:
    """Return all ACLs."""
    try:
        found = Acls(admin).all()
    except KafkaError as error:
        if error.error_code != ErrorCode.SECURITY_DISABLED:
            raise
        return []
    return [acl_row(each) for each in found[:SHOWN_ROWS]]
