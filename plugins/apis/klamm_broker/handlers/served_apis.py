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
    """One API, and its handler: `function` of the API's module, called as `function(services, request, context)`.

    With `blocking=False` the processor's thread calls the handler. Otherwise a request handler's thread does, except
    for requests of at most `inline_max_bytes`.
    """

    api_key: ApiKey
    function: str
    versions: range
    blocking: bool = True
    inline_max_bytes: int = 0

    @property
    def module(self) -> str:
        """The name of the handler's module, e.g. `k12_heartbeat`."""
        return f"k{self.api_key:02}_{self.api_key.name.lower()}"

    def bind(self, services: BrokerServices) -> ApiHandler:
        """Return the handler. Its module is imported at the first call."""

        @cache
        def load() -> tuple[Any, Callable[..., Any]]:
            function = getattr(import_module(f"klamm_broker.handlers.{self.module}"), self.function)
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
    ServedApi(ApiKey.PRODUCE, "produce_records", range(3, 14), inline_max_bytes=64 * 1024),
    ServedApi(ApiKey.FETCH, "fetch_records", range(4, 19), blocking=False),
    ServedApi(ApiKey.LIST_OFFSETS, "find_offsets", range(1, 12)),
    ServedApi(ApiKey.METADATA, "topic_metadata", range(0, 14), blocking=False),
    ServedApi(ApiKey.OFFSET_COMMIT, "commit_offsets", range(2, 11), blocking=False),
    ServedApi(ApiKey.OFFSET_FETCH, "fetch_offsets", range(1, 11), blocking=False),
    ServedApi(ApiKey.FIND_COORDINATOR, "find_coordinators", range(0, 7), blocking=False),
    ServedApi(ApiKey.JOIN_GROUP, "join", range(0, 10), blocking=False),
    ServedApi(ApiKey.HEARTBEAT, "keep_session", range(0, 5), blocking=False),
    ServedApi(ApiKey.LEAVE_GROUP, "leave", range(0, 6), blocking=False),
    ServedApi(ApiKey.SYNC_GROUP, "sync", range(0, 6), blocking=False),
    ServedApi(ApiKey.DESCRIBE_GROUPS, "describe", range(0, 7)),
    ServedApi(ApiKey.LIST_GROUPS, "list_all", range(0, 6)),
    ServedApi(ApiKey.SASL_HANDSHAKE, "late_handshake", range(0, 2), blocking=False),
    ServedApi(ApiKey.CREATE_TOPICS, "create_named_topics", range(2, 8)),
    ServedApi(ApiKey.DELETE_TOPICS, "delete_named_topics", range(1, 7)),
    ServedApi(ApiKey.DELETE_RECORDS, "delete_records_before", range(0, 3)),
    ServedApi(ApiKey.INIT_PRODUCER_ID, "new_producer_id", range(0, 6)),
    ServedApi(ApiKey.OFFSET_FOR_LEADER_EPOCH, "end_offsets", range(2, 5), blocking=False),
    ServedApi(ApiKey.ADD_PARTITIONS_TO_TXN, "add_partitions", range(0, 6)),
    ServedApi(ApiKey.ADD_OFFSETS_TO_TXN, "add_offsets", range(0, 5), blocking=False),
    ServedApi(ApiKey.END_TXN, "end_transaction", range(0, 6)),
    ServedApi(ApiKey.WRITE_TXN_MARKERS, "write_markers", range(1, 3)),
    ServedApi(ApiKey.TXN_OFFSET_COMMIT, "commit_in_transaction", range(0, 7), blocking=False),
    ServedApi(ApiKey.DESCRIBE_ACLS, "matching_acls", range(1, 4)),
    ServedApi(ApiKey.CREATE_ACLS, "create_bindings", range(1, 4)),
    ServedApi(ApiKey.DELETE_ACLS, "delete_bindings", range(1, 4)),
    ServedApi(ApiKey.DESCRIBE_CONFIGS, "configs_of_resources", range(1, 5)),
    ServedApi(ApiKey.ALTER_CONFIGS, "replace_configs", range(0, 3)),
    ServedApi(ApiKey.ALTER_REPLICA_LOG_DIRS, "move_replicas", range(1, 3), blocking=False),
    ServedApi(ApiKey.DESCRIBE_LOG_DIRS, "log_directories", range(1, 6)),
    ServedApi(ApiKey.SASL_AUTHENTICATE, "late_authenticate", range(0, 3), blocking=False),
    ServedApi(ApiKey.CREATE_PARTITIONS, "add_partitions", range(0, 4)),
    ServedApi(ApiKey.CREATE_DELEGATION_TOKEN, "create_token", range(1, 4)),
    ServedApi(ApiKey.RENEW_DELEGATION_TOKEN, "renew_token", range(1, 3)),
    ServedApi(ApiKey.EXPIRE_DELEGATION_TOKEN, "expire_token", range(1, 3)),
    ServedApi(ApiKey.DESCRIBE_DELEGATION_TOKEN, "tokens_of_owners", range(1, 4), blocking=False),
    ServedApi(ApiKey.DELETE_GROUPS, "delete", range(0, 4), blocking=False),
    ServedApi(ApiKey.ELECT_LEADERS, "elect", range(0, 3), blocking=False),
    ServedApi(ApiKey.INCREMENTAL_ALTER_CONFIGS, "alter_some_configs", range(0, 2)),
    ServedApi(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "reassign", range(0, 2), blocking=False),
    ServedApi(ApiKey.LIST_PARTITION_REASSIGNMENTS, "list_reassignments", range(0, 1), blocking=False),
    ServedApi(ApiKey.OFFSET_DELETE, "delete_offsets", range(0, 1), blocking=False),
    ServedApi(ApiKey.DESCRIBE_CLIENT_QUOTAS, "matching_quotas", range(0, 2), blocking=False),
    ServedApi(ApiKey.ALTER_CLIENT_QUOTAS, "alter_quotas", range(0, 2)),
    ServedApi(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "scram_users", range(0, 1), blocking=False),
    ServedApi(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "alter_scram_users", range(0, 1)),
    ServedApi(ApiKey.DESCRIBE_QUORUM, "quorum", range(0, 3), blocking=False),
    ServedApi(ApiKey.UPDATE_FEATURES, "change_levels", range(0, 3)),
    ServedApi(ApiKey.DESCRIBE_CLUSTER, "cluster", range(0, 3), blocking=False),
    ServedApi(ApiKey.DESCRIBE_PRODUCERS, "active_producers", range(0, 1)),
    ServedApi(ApiKey.DESCRIBE_TRANSACTIONS, "describe", range(0, 1), blocking=False),
    ServedApi(ApiKey.LIST_TRANSACTIONS, "list_matching", range(0, 3), blocking=False),
    ServedApi(ApiKey.CONSUMER_GROUP_HEARTBEAT, "keep_consumer", range(0, 2)),
    ServedApi(ApiKey.CONSUMER_GROUP_DESCRIBE, "describe_consumers", range(0, 2)),
    ServedApi(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "telemetry_subscription", range(0, 1), blocking=False),
    ServedApi(ApiKey.PUSH_TELEMETRY, "take_metrics", range(0, 1)),
    ServedApi(ApiKey.LIST_CONFIG_RESOURCES, "config_resources", range(0, 2), blocking=False),
    ServedApi(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "topic_partitions", range(0, 1), blocking=False),
    ServedApi(ApiKey.SHARE_GROUP_HEARTBEAT, "keep_share_member", range(1, 2)),
    ServedApi(ApiKey.SHARE_GROUP_DESCRIBE, "describe_share_groups", range(1, 2)),
    ServedApi(ApiKey.SHARE_FETCH, "fetch_shared", range(1, 3)),
    ServedApi(ApiKey.SHARE_ACKNOWLEDGE, "acknowledge_shared", range(1, 3)),
    ServedApi(ApiKey.STREAMS_GROUP_HEARTBEAT, "keep_streams_member", range(0, 2)),
    ServedApi(ApiKey.STREAMS_GROUP_DESCRIBE, "describe_streams_groups", range(0, 2)),
    ServedApi(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "describe_share_offsets", range(0, 2)),
    ServedApi(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "alter_share_offsets", range(0, 1)),
    ServedApi(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "delete_share_offsets", range(0, 1)),
    ServedApi(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, "refuse_description", range(0, 1), blocking=False),
)


def handlers(services: BrokerServices) -> Iterator[ApiHandler]:
    """Yield the handlers of all APIs. The response to ApiVersions follows from them."""
    for api in APIS:
        handler = api.bind(services)
        if api.api_key is ApiKey.METADATA:
            # Every client sends this request first, and should not wait for an import.
            handler.load()
        yield handler
