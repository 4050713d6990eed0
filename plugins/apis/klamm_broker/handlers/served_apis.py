"""The APIs that the broker serves: one module per API, named after its key, whose docstring describes the behaviour.

The table contains all facts about an API that ApiVersions and the server need. So the server starts without importing
all handlers and their messages; most clients use only a few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from klamm import ApiHandler
from klamm.wire.api_keys import ApiKey, spec_of
from klamm.wire.api_keys import load as load_messages
from klamm_broker.services import BrokerServices


class ServedApi(NamedTuple):
    """One API, and its handler: `module.function`, which is called as `function(services, request, context)`."""

    api_key: ApiKey
    function: str
    versions: range
    blocking: bool = True
    inline_max_bytes: int = 0

    def bind(self, services: BrokerServices) -> ApiHandler:
        """Return the handler. Its module is imported at the first call."""

        @cache
        def load() -> tuple[Any, Callable[..., Any]]:
            module, _, name = self.function.partition(".")
            function = getattr(import_module(f"klamm_broker.handlers.{module}"), name)
            return load_messages(self.api_key), function.__get__(services)

        return ApiHandler(
            api_key=int(self.api_key),
            name=spec_of(self.api_key).name,
            min_version=self.versions.start,
            max_version=self.versions.stop - 1,
            load=load,
            blocking=self.blocking,
            inline_max_bytes=self.inline_max_bytes,
        )


APIS: Final = (
    ServedApi(ApiKey.PRODUCE, "k00_produce.produce_records", range(3, 14), inline_max_bytes=64 * 1024),
    ServedApi(ApiKey.FETCH, "k01_fetch.fetch_records", range(4, 19), blocking=False),
    ServedApi(ApiKey.LIST_OFFSETS, "k02_list_offsets.find_offsets", range(1, 12)),
    ServedApi(ApiKey.METADATA, "k03_metadata.topic_metadata", range(0, 14), blocking=False),
    ServedApi(ApiKey.OFFSET_COMMIT, "k08_offset_commit.commit_offsets", range(2, 11), blocking=False),
    ServedApi(ApiKey.OFFSET_FETCH, "k09_offset_fetch.fetch_offsets", range(1, 11), blocking=False),
    ServedApi(ApiKey.FIND_COORDINATOR, "k10_find_coordinator.find_coordinators", range(0, 7), blocking=False),
    ServedApi(ApiKey.JOIN_GROUP, "k11_join_group.join", range(0, 10), blocking=False),
    ServedApi(ApiKey.HEARTBEAT, "k12_heartbeat.keep_session", range(0, 5), blocking=False),
    ServedApi(ApiKey.LEAVE_GROUP, "k13_leave_group.leave", range(0, 6), blocking=False),
    ServedApi(ApiKey.SYNC_GROUP, "k14_sync_group.sync", range(0, 6), blocking=False),
    ServedApi(ApiKey.DESCRIBE_GROUPS, "k15_describe_groups.describe", range(0, 7)),
    ServedApi(ApiKey.LIST_GROUPS, "k16_list_groups.list_all", range(0, 6)),
    ServedApi(ApiKey.SASL_HANDSHAKE, "k17_sasl_handshake.late_handshake", range(0, 2), blocking=False),
    ServedApi(ApiKey.CREATE_TOPICS, "k19_create_topics.create_named_topics", range(2, 8)),
    ServedApi(ApiKey.DELETE_TOPICS, "k20_delete_topics.delete_named_topics", range(1, 7)),
    ServedApi(ApiKey.DELETE_RECORDS, "k21_delete_records.delete_records_before", range(0, 3)),
    ServedApi(ApiKey.INIT_PRODUCER_ID, "k22_init_producer_id.new_producer_id", range(0, 6)),
    ServedApi(ApiKey.OFFSET_FOR_LEADER_EPOCH, "k23_offset_for_leader_epoch.end_offsets", range(2, 5), blocking=False),
    ServedApi(ApiKey.ADD_PARTITIONS_TO_TXN, "k24_add_partitions_to_txn.add_partitions", range(0, 6)),
    ServedApi(ApiKey.ADD_OFFSETS_TO_TXN, "k25_add_offsets_to_txn.add_offsets", range(0, 5), blocking=False),
    ServedApi(ApiKey.END_TXN, "k26_end_txn.end_transaction", range(0, 6)),
    ServedApi(ApiKey.WRITE_TXN_MARKERS, "k27_write_txn_markers.write_markers", range(1, 3)),
    ServedApi(ApiKey.TXN_OFFSET_COMMIT, "k28_txn_offset_commit.commit_in_transaction", range(0, 7), blocking=False),
    ServedApi(ApiKey.DESCRIBE_ACLS, "k29_describe_acls.matching_acls", range(1, 4)),
    ServedApi(ApiKey.CREATE_ACLS, "k30_create_acls.create_bindings", range(1, 4)),
    ServedApi(ApiKey.DELETE_ACLS, "k31_delete_acls.delete_bindings", range(1, 4)),
    ServedApi(ApiKey.DESCRIBE_CONFIGS, "k32_describe_configs.configs_of_resources", range(1, 5)),
    ServedApi(ApiKey.ALTER_CONFIGS, "k33_alter_configs.replace_configs", range(0, 3)),
    ServedApi(ApiKey.ALTER_REPLICA_LOG_DIRS, "k34_alter_replica_log_dirs.move_replicas", range(1, 3), blocking=False),
    ServedApi(ApiKey.DESCRIBE_LOG_DIRS, "k35_describe_log_dirs.log_directories", range(1, 6)),
    ServedApi(ApiKey.SASL_AUTHENTICATE, "k36_sasl_authenticate.late_authenticate", range(0, 3), blocking=False),
    ServedApi(ApiKey.CREATE_PARTITIONS, "k37_create_partitions.add_partitions", range(0, 4)),
    ServedApi(ApiKey.CREATE_DELEGATION_TOKEN, "k38_create_delegation_token.create_token", range(1, 4)),
    ServedApi(ApiKey.RENEW_DELEGATION_TOKEN, "k39_renew_delegation_token.renew_token", range(1, 3)),
    ServedApi(ApiKey.EXPIRE_DELEGATION_TOKEN, "k40_expire_delegation_token.expire_token", range(1, 3)),
    ServedApi(
        ApiKey.DESCRIBE_DELEGATION_TOKEN, "k41_describe_delegation_token.tokens_of_owners", range(1, 4), blocking=False
    ),
    ServedApi(ApiKey.DELETE_GROUPS, "k42_delete_groups.delete", range(0, 4), blocking=False),
    ServedApi(ApiKey.ELECT_LEADERS, "k43_elect_leaders.elect", range(0, 3), blocking=False),
    ServedApi(ApiKey.INCREMENTAL_ALTER_CONFIGS, "k44_incremental_alter_configs.alter_some_configs", range(0, 2)),
    ServedApi(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, "k45_alter_partition_reassignments.reassign", range(0, 2), blocking=False
    ),
    ServedApi(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        "k46_list_partition_reassignments.list_reassignments",
        range(0, 1),
        blocking=False,
    ),
    ServedApi(ApiKey.OFFSET_DELETE, "k47_offset_delete.delete_offsets", range(0, 1), blocking=False),
    ServedApi(ApiKey.DESCRIBE_CLIENT_QUOTAS, "k48_describe_client_quotas.matching_quotas", range(0, 2), blocking=False),
    ServedApi(ApiKey.ALTER_CLIENT_QUOTAS, "k49_alter_client_quotas.alter_quotas", range(0, 2)),
    ServedApi(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        "k50_describe_user_scram_credentials.scram_users",
        range(0, 1),
        blocking=False,
    ),
    ServedApi(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "k51_alter_user_scram_credentials.alter_scram_users", range(0, 1)),
    ServedApi(ApiKey.DESCRIBE_QUORUM, "k55_describe_quorum.quorum", range(0, 3), blocking=False),
    ServedApi(ApiKey.UPDATE_FEATURES, "k57_update_features.change_levels", range(0, 3)),
    ServedApi(ApiKey.DESCRIBE_CLUSTER, "k60_describe_cluster.cluster", range(0, 3), blocking=False),
    ServedApi(ApiKey.DESCRIBE_PRODUCERS, "k61_describe_producers.active_producers", range(0, 1)),
    ServedApi(ApiKey.DESCRIBE_TRANSACTIONS, "k65_describe_transactions.describe", range(0, 1), blocking=False),
    ServedApi(ApiKey.LIST_TRANSACTIONS, "k66_list_transactions.list_matching", range(0, 3), blocking=False),
    ServedApi(ApiKey.CONSUMER_GROUP_HEARTBEAT, "k68_consumer_group_heartbeat.keep_consumer", range(0, 2)),
    ServedApi(ApiKey.CONSUMER_GROUP_DESCRIBE, "k69_consumer_group_describe.describe_consumers", range(0, 2)),
    ServedApi(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        "k71_get_telemetry_subscriptions.telemetry_subscription",
        range(0, 1),
        blocking=False,
    ),
    ServedApi(ApiKey.PUSH_TELEMETRY, "k72_push_telemetry.take_metrics", range(0, 1)),
    ServedApi(ApiKey.LIST_CONFIG_RESOURCES, "k74_list_config_resources.config_resources", range(0, 2), blocking=False),
    ServedApi(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, "k75_describe_topic_partitions.topic_partitions", range(0, 1), blocking=False
    ),
    ServedApi(ApiKey.SHARE_GROUP_HEARTBEAT, "k76_share_group_heartbeat.keep_share_member", range(1, 2)),
    ServedApi(ApiKey.SHARE_GROUP_DESCRIBE, "k77_share_group_describe.describe_share_groups", range(1, 2)),
    ServedApi(ApiKey.SHARE_FETCH, "k78_share_fetch.fetch_shared", range(1, 3)),
    ServedApi(ApiKey.SHARE_ACKNOWLEDGE, "k79_share_acknowledge.acknowledge_shared", range(1, 3)),
    ServedApi(ApiKey.STREAMS_GROUP_HEARTBEAT, "k88_streams_group_heartbeat.keep_streams_member", range(0, 2)),
    ServedApi(ApiKey.STREAMS_GROUP_DESCRIBE, "k89_streams_group_describe.describe_streams_groups", range(0, 2)),
    ServedApi(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "k90_describe_share_group_offsets.describe_share_offsets", range(0, 2)
    ),
    ServedApi(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "k91_alter_share_group_offsets.alter_share_offsets", range(0, 1)),
    ServedApi(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "k92_delete_share_group_offsets.delete_share_offsets", range(0, 1)),
    ServedApi(
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        "k93_streams_group_topology_description_update.refuse_description",
        range(0, 1),
        blocking=False,
    ),
)


def handlers(services: BrokerServices) -> Iterator[ApiHandler]:
    """Yield the handlers of all APIs. The response to ApiVersions follows from them."""
    for api in APIS:
        handler = api.bind(services)
        if api.api_key is ApiKey.METADATA:
            # Every client sends this request first, and should not wait for an import.
            handler.load()
        yield handler
