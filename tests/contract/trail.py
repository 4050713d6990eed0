"""Requests that change state, and functions that find in the broker which changes were made, for `test_trail.py`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from klamm.testing import RawClient
from klamm.wire.api_keys import ApiKey, load, spec_of
from klamm.wire.messages import alter_client_quotas as quotas
from klamm.wire.messages import (
    alter_configs,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_user_scram_credentials,
    init_producer_id,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sync_group,
)
from klamm.wire.messages import alter_user_scram_credentials as users
from klamm.wire.messages import create_delegation_token as tokens
from klamm.wire.messages import incremental_alter_configs as incremental
from klamm.wire.records import Record, encode_batch

Names = list[str]
SHARED = "shared"
_RETENTION_MS = "123456"
_NO_SUBSCRIPTION = struct.pack(">hii", 0, 0, -1)


@dataclass(frozen=True)
class Change:
    """A kind of change: its API, its request, and how the change is found afterwards.

    `request(name, prepared[name])` returns a request that changes something which only `name` has. `done` returns the
    names whose change was made; None if the broker shows no such state. `prepare` creates what the requests need. Both
    use a connection of their own.
    """

    api_key: ApiKey
    version: int
    request: Callable[[str, Any], Any]
    done: Callable[[RawClient, Names, dict[str, Any]], set[str]] | None = None
    prepare: Callable[[RawClient, Names], dict[str, Any]] = lambda client, names: {}


def any_change(api_key: int) -> Change:
    """Return the change that an empty request of an API makes."""
    module, version = load(api_key), spec_of(api_key).max_version
    return Change(ApiKey(api_key), version, lambda name, prepared: vars(module)[f"{module.NAME}Request"]())


# ---- topics


def make_topics(client: RawClient, names: Names, partitions: int = 1) -> dict[str, Any]:
    wanted = [create_topics.CreatableTopic(name, partitions, 1) for name in names]
    answer = client.call(create_topics.CreateTopicsRequest(wanted), 5)
    assert {topic.error_code for topic in answer.topics} <= {0, 36}
    return {}


def topics_of(client: RawClient) -> dict[str, int]:
    answer = client.call(metadata.MetadataRequest(topics=None), 12)
    return {topic.name: len(topic.partitions) for topic in answer.topics}


def existing(client: RawClient, names: Names, prepared: dict[str, Any]) -> set[str]:
    return set(names) & topics_of(client).keys()


def missing(client: RawClient, names: Names, prepared: dict[str, Any]) -> set[str]:
    return set(names) - topics_of(client).keys()


def grown(client: RawClient, names: Names, prepared: dict[str, Any]) -> set[str]:
    return {name for name, partitions in topics_of(client).items() if name in names and partitions == 2}


def configured(client: RawClient, names: Names, prepared: dict[str, Any]) -> set[str]:
    wanted = [describe_configs.DescribeConfigsResource(2, name, ["retention.ms"]) for name in names]
    answer = client.call(describe_configs.DescribeConfigsRequest(wanted), 4)
    return {one.resource_name for one in answer.results if one.configs[0].value == _RETENTION_MS}


def one_record_each(client: RawClient, names: Names) -> dict[str, Any]:
    """Create a topic with a partition for each name, and write a record to each partition."""
    topic = f"records-of-{names[0]}"
    make_topics(client, [topic], len(names))
    records = encode_batch([Record(0, 0, b"k", b"v", [])])
    data = [produce.PartitionProduceData(number, records) for number in range(len(names))]
    answer = client.call(
        produce.ProduceRequest(acks=1, topic_data=[produce.TopicProduceData(topic, partition_data=data)]), 9
    )
    assert {one.error_code for one in answer.responses[0].partition_responses} == {0}
    return {name: (topic, number) for number, name in enumerate(names)}


def records_deleted(client: RawClient, names: Names, prepared: dict[str, Any]) -> set[str]:
    partitions = [list_offsets.ListOffsetsPartition(number, timestamp=-2) for number in range(len(names))]
    topics = [list_offsets.ListOffsetsTopic(prepared[names[0]][0], partitions)]
    answer = client.call(list_offsets.ListOffsetsRequest(-1, 0, topics), 7)
    started = {one.partition_index for one in answer.topics[0].partitions if one.offset == 1}
    return {name for name in names if prepared[name][1] in started}


def delete_record(name: str, place: Any) -> Any:
    topic, number = place
    partitions = [delete_records.DeleteRecordsPartition(number, 1)]
    return delete_records.DeleteRecordsRequest([delete_records.DeleteRecordsTopic(topic, partitions)], 5000)


# ---- rights, users, quotas, tokens


def acl_names(client: RawClient, names: Names, prepared: dict[str, Any]) -> set[str]:
    answer = client.call(describe_acls.DescribeAclsRequest(2, None, 1, None, None, 1, 1), 3)
    return {resource.resource_name for resource in answer.resources} & set(names)


def acls_gone(client: RawClient, names: Names, prepared: dict[str, Any]) -> set[str]:
    return set(names) - acl_names(client, names, prepared)


def make_acls(client: RawClient, names: Names) -> dict[str, Any]:
    for name in names:
        client.call(create_acl(name, None), 3)
    return {}


def create_acl(name: str, prepared: Any) -> Any:
    return create_acls.CreateAclsRequest([create_acls.AclCreation(2, name, 3, "User:bob", "*", 3, 3)])


def users_of(client: RawClient, names: Names, prepared: dict[str, Any]) -> set[str]:
    answer = client.call(describe_user_scram_credentials.DescribeUserScramCredentialsRequest(None), 0)
    return {one.user for one in answer.results} & set(names)


def quotas_of(client: RawClient, names: Names, prepared: dict[str, Any]) -> set[str]:
    components = [describe_client_quotas.ComponentData("user", 2, None)]
    answer = client.call(describe_client_quotas.DescribeClientQuotasRequest(components, False), 1)
    return {part.entity_name for entry in answer.entries or () for part in entry.entity} & set(names)


def alter_quota(name: str, prepared: Any) -> Any:
    entity = [quotas.RequestEntityData("user", name)]
    return quotas.AlterClientQuotasRequest(
        [quotas.RequestEntryData(entity, [quotas.OpData("producer_byte_rate", 1e9)])]
    )


def upsert_user(name: str, prepared: Any) -> Any:
    upsertion = users.ScramCredentialUpsertion(name, 1, 4096, b"a salt of some length", bytes(32))
    return users.AlterUserScramCredentialsRequest([], [upsertion])


def token_renewers(client: RawClient, names: Names, prepared: dict[str, Any]) -> set[str]:
    answer = client.call(describe_delegation_token.DescribeDelegationTokenRequest(None), 3)
    renewers = {renewer.principal_name for token in answer.tokens for renewer in token.renewers}
    return renewers & set(names)


# ---- groups and producers


def commit(group: str, prepared: Any = None) -> Any:
    partitions = [offset_commit.OffsetCommitRequestPartition(0, 7, committed_metadata="")]
    return offset_commit.OffsetCommitRequest(
        group, topics=[offset_commit.OffsetCommitRequestTopic(SHARED, partitions=partitions)]
    )


def make_commits(client: RawClient, names: Names) -> dict[str, Any]:
    make_topics(client, [SHARED])
    for name in names:
        client.call(commit(name), 8)
    return {}


def share_topic(client: RawClient, names: Names) -> dict[str, Any]:
    return make_topics(client, [SHARED])


def committed(client: RawClient, names: Names, prepared: dict[str, Any]) -> set[str]:
    topics = [offset_fetch.OffsetFetchRequestTopics(SHARED, partition_indexes=[0])]
    groups = [offset_fetch.OffsetFetchRequestGroup(name, None, -1, topics) for name in names]
    answer = client.call(offset_fetch.OffsetFetchRequest(groups=groups), 8)
    return {one.group_id for one in answer.groups if one.topics[0].partitions[0].committed_offset == 7}


def not_committed(client: RawClient, names: Names, prepared: dict[str, Any]) -> set[str]:
    return set(names) - committed(client, names, prepared)


def states_of(client: RawClient, names: Names) -> dict[str, str]:
    answer = client.call(describe_groups.DescribeGroupsRequest(names), 5)
    return {group.group_id: group.group_state for group in answer.groups}


def in_state(*states: str) -> Callable[[RawClient, Names, dict[str, Any]], set[str]]:
    return lambda client, names, prepared: {name for name, state in states_of(client, names).items() if state in states}


def join(name: str, prepared: Any = None) -> Any:
    protocols = [join_group.JoinGroupRequestProtocol("range", _NO_SUBSCRIPTION)]
    return join_group.JoinGroupRequest(name, 1_800_000, 1_800_000, "", None, "consumer", protocols)


def make_members(client: RawClient, names: Names) -> dict[str, Any]:
    return {name: client.call(join(name), 3) for name in names}


def sync(name: str, joined: Any) -> Any:
    assignments = [sync_group.SyncGroupRequestAssignment(joined.member_id, b"a")]
    return sync_group.SyncGroupRequest(name, joined.generation_id, joined.member_id, assignments=assignments)


def make_stable(client: RawClient, names: Names) -> dict[str, Any]:
    members = make_members(client, names)
    for name, joined in members.items():
        assert client.call(sync(name, joined), 2).error_code == 0
    return members


def delete_offset(name: str, prepared: Any) -> Any:
    partitions = [offset_delete.OffsetDeleteRequestPartition(0)]
    return offset_delete.OffsetDeleteRequest(name, [offset_delete.OffsetDeleteRequestTopic(SHARED, partitions)])


def _with_value(module: Any, name: str, *operation: int) -> Any:
    config = module.AlterableConfig("retention.ms", *operation, _RETENTION_MS)
    return [module.AlterConfigsResource(2, name, [config])]


K = ApiKey
CHANGES = [
    Change(
        K.CREATE_TOPICS,
        5,
        lambda name, prepared: create_topics.CreateTopicsRequest([create_topics.CreatableTopic(name, 1, 1)]),
        existing,
    ),
    Change(
        K.DELETE_TOPICS,
        5,
        lambda name, prepared: delete_topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=5000),
        missing,
        make_topics,
    ),
    Change(
        K.CREATE_PARTITIONS,
        3,
        lambda name, prepared: create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic(name, 2, None)], 5000
        ),
        grown,
        make_topics,
    ),
    Change(K.DELETE_RECORDS, 2, delete_record, records_deleted, one_record_each),
    Change(
        K.ALTER_CONFIGS,
        2,
        lambda name, prepared: alter_configs.AlterConfigsRequest(_with_value(alter_configs, name)),
        configured,
        make_topics,
    ),
    Change(
        K.INCREMENTAL_ALTER_CONFIGS,
        1,
        lambda name, prepared: incremental.IncrementalAlterConfigsRequest(_with_value(incremental, name, 0)),
        configured,
        make_topics,
    ),
    Change(K.CREATE_ACLS, 3, create_acl, acl_names),
    Change(
        K.DELETE_ACLS,
        3,
        lambda name, prepared: delete_acls.DeleteAclsRequest(
            [delete_acls.DeleteAclsFilter(2, name, 3, None, None, 1, 1)]
        ),
        acls_gone,
        make_acls,
    ),
    Change(K.ALTER_USER_SCRAM_CREDENTIALS, 0, upsert_user, users_of),
    Change(K.ALTER_CLIENT_QUOTAS, 1, alter_quota, quotas_of),
    Change(
        K.CREATE_DELEGATION_TOKEN,
        3,
        lambda name, prepared: tokens.CreateDelegationTokenRequest(
            None, None, [tokens.CreatableRenewers("User", name)], 100_000
        ),
        token_renewers,
    ),
    Change(K.OFFSET_COMMIT, 8, commit, committed, share_topic),
    Change(K.OFFSET_DELETE, 0, delete_offset, not_committed, make_commits),
    Change(
        K.DELETE_GROUPS,
        2,
        lambda name, prepared: delete_groups.DeleteGroupsRequest([name]),
        in_state("Dead"),
        make_commits,
    ),
    Change(K.JOIN_GROUP, 3, join, in_state("CompletingRebalance", "PreparingRebalance", "Stable")),
    Change(K.SYNC_GROUP, 2, sync, in_state("Stable"), make_members),
    Change(
        K.LEAVE_GROUP,
        2,
        lambda name, joined: leave_group.LeaveGroupRequest(name, joined.member_id),
        in_state("Empty", "Dead"),
        make_stable,
    ),
    Change(K.INIT_PRODUCER_ID, 4, lambda name, prepared: init_producer_id.InitProducerIdRequest(None, 60_000)),
]
