"""What each API does to the server's state: the one table by which requests are aggregated, excluded and kept."""

from __future__ import annotations

import enum
from typing import Any, Final

from klamm.wire.api_keys import ApiKey


class ApiClass(enum.Enum):
    """What the requests of an API do.

    `CHANGE`      creates, deletes, alters, commits, joins or leaves: each is recorded by itself.
    `MEMBERSHIP`  a heartbeat that joins, leaves or changes a subscription is a change; one that does not is a read.
    `DATA`        moves records and their delivery state: adds up by topic.
    `READ`        changes nothing that others rely on.
    """

    CHANGE = "change"
    MEMBERSHIP = "membership"
    DATA = "data"
    READ = "read"


_K = ApiKey
_C = ApiClass

API_CLASSES: Final[dict[ApiKey, ApiClass]] = {
    _K.PRODUCE: _C.DATA,
    _K.FETCH: _C.DATA,
    _K.LIST_OFFSETS: _C.READ,
    # A topic that it creates is an administrative event of its own: `topic_auto_created`.
    _K.METADATA: _C.READ,
    _K.LEADER_AND_ISR: _C.CHANGE,
    _K.STOP_REPLICA: _C.CHANGE,
    _K.UPDATE_METADATA: _C.CHANGE,
    _K.CONTROLLED_SHUTDOWN: _C.CHANGE,
    _K.OFFSET_COMMIT: _C.CHANGE,
    _K.OFFSET_FETCH: _C.READ,
    _K.FIND_COORDINATOR: _C.READ,
    _K.JOIN_GROUP: _C.CHANGE,
    _K.HEARTBEAT: _C.READ,
    _K.LEAVE_GROUP: _C.CHANGE,
    _K.SYNC_GROUP: _C.CHANGE,
    _K.DESCRIBE_GROUPS: _C.READ,
    _K.LIST_GROUPS: _C.READ,
    # Logins are authentication events.
    _K.SASL_HANDSHAKE: _C.READ,
    _K.API_VERSIONS: _C.READ,
    _K.CREATE_TOPICS: _C.CHANGE,
    _K.DELETE_TOPICS: _C.CHANGE,
    _K.DELETE_RECORDS: _C.CHANGE,
    _K.INIT_PRODUCER_ID: _C.CHANGE,
    _K.OFFSET_FOR_LEADER_EPOCH: _C.READ,
    _K.ADD_PARTITIONS_TO_TXN: _C.CHANGE,
    _K.ADD_OFFSETS_TO_TXN: _C.CHANGE,
    _K.END_TXN: _C.CHANGE,
    _K.WRITE_TXN_MARKERS: _C.CHANGE,
    _K.TXN_OFFSET_COMMIT: _C.CHANGE,
    _K.DESCRIBE_ACLS: _C.READ,
    _K.CREATE_ACLS: _C.CHANGE,
    _K.DELETE_ACLS: _C.CHANGE,
    _K.DESCRIBE_CONFIGS: _C.READ,
    _K.ALTER_CONFIGS: _C.CHANGE,
    _K.ALTER_REPLICA_LOG_DIRS: _C.CHANGE,
    _K.DESCRIBE_LOG_DIRS: _C.READ,
    _K.SASL_AUTHENTICATE: _C.READ,
    _K.CREATE_PARTITIONS: _C.CHANGE,
    _K.CREATE_DELEGATION_TOKEN: _C.CHANGE,
    _K.RENEW_DELEGATION_TOKEN: _C.CHANGE,
    _K.EXPIRE_DELEGATION_TOKEN: _C.CHANGE,
    _K.DESCRIBE_DELEGATION_TOKEN: _C.READ,
    _K.DELETE_GROUPS: _C.CHANGE,
    _K.ELECT_LEADERS: _C.CHANGE,
    _K.INCREMENTAL_ALTER_CONFIGS: _C.CHANGE,
    _K.ALTER_PARTITION_REASSIGNMENTS: _C.CHANGE,
    _K.LIST_PARTITION_REASSIGNMENTS: _C.READ,
    _K.OFFSET_DELETE: _C.CHANGE,
    _K.DESCRIBE_CLIENT_QUOTAS: _C.READ,
    _K.ALTER_CLIENT_QUOTAS: _C.CHANGE,
    _K.DESCRIBE_USER_SCRAM_CREDENTIALS: _C.READ,
    _K.ALTER_USER_SCRAM_CREDENTIALS: _C.CHANGE,
    _K.VOTE: _C.CHANGE,
    _K.BEGIN_QUORUM_EPOCH: _C.CHANGE,
    _K.END_QUORUM_EPOCH: _C.CHANGE,
    _K.DESCRIBE_QUORUM: _C.READ,
    _K.ALTER_PARTITION: _C.CHANGE,
    _K.UPDATE_FEATURES: _C.CHANGE,
    _K.ENVELOPE: _C.CHANGE,
    _K.FETCH_SNAPSHOT: _C.READ,
    _K.DESCRIBE_CLUSTER: _C.READ,
    _K.DESCRIBE_PRODUCERS: _C.READ,
    _K.BROKER_REGISTRATION: _C.CHANGE,
    _K.BROKER_HEARTBEAT: _C.READ,
    _K.UNREGISTER_BROKER: _C.CHANGE,
    _K.DESCRIBE_TRANSACTIONS: _C.READ,
    _K.LIST_TRANSACTIONS: _C.READ,
    _K.ALLOCATE_PRODUCER_IDS: _C.CHANGE,
    _K.CONSUMER_GROUP_HEARTBEAT: _C.MEMBERSHIP,
    _K.CONSUMER_GROUP_DESCRIBE: _C.READ,
    _K.CONTROLLER_REGISTRATION: _C.CHANGE,
    _K.GET_TELEMETRY_SUBSCRIPTIONS: _C.READ,
    _K.PUSH_TELEMETRY: _C.READ,
    _K.ASSIGN_REPLICAS_TO_DIRS: _C.CHANGE,
    _K.LIST_CONFIG_RESOURCES: _C.READ,
    _K.DESCRIBE_TOPIC_PARTITIONS: _C.READ,
    _K.SHARE_GROUP_HEARTBEAT: _C.MEMBERSHIP,
    _K.SHARE_GROUP_DESCRIBE: _C.READ,
    _K.SHARE_FETCH: _C.DATA,
    _K.SHARE_ACKNOWLEDGE: _C.DATA,
    _K.ADD_RAFT_VOTER: _C.CHANGE,
    _K.REMOVE_RAFT_VOTER: _C.CHANGE,
    _K.UPDATE_RAFT_VOTER: _C.CHANGE,
    _K.INITIALIZE_SHARE_GROUP_STATE: _C.CHANGE,
    _K.READ_SHARE_GROUP_STATE: _C.READ,
    _K.WRITE_SHARE_GROUP_STATE: _C.CHANGE,
    _K.DELETE_SHARE_GROUP_STATE: _C.CHANGE,
    _K.READ_SHARE_GROUP_STATE_SUMMARY: _C.READ,
    _K.STREAMS_GROUP_HEARTBEAT: _C.MEMBERSHIP,
    _K.STREAMS_GROUP_DESCRIBE: _C.READ,
    _K.DESCRIBE_SHARE_GROUP_OFFSETS: _C.READ,
    _K.ALTER_SHARE_GROUP_OFFSETS: _C.CHANGE,
    _K.DELETE_SHARE_GROUP_OFFSETS: _C.CHANGE,
}
"""Every API key of Kafka's protocol."""

CHANGING: Final = frozenset(int(key) for key, kind in API_CLASSES.items() if kind in (_C.CHANGE, _C.MEMBERSHIP))
"""APIs whose requests may be state changes."""
_MEMBERSHIP: Final = frozenset(int(key) for key, kind in API_CLASSES.items() if kind is _C.MEMBERSHIP)
_SUBSCRIPTION: Final = ("subscribed_topic_names", "subscribed_topic_regex", "topology")
ADMINISTRATIVE: Final = frozenset(
    {
        _K.CREATE_TOPICS,
        _K.DELETE_TOPICS,
        _K.DELETE_RECORDS,
        _K.CREATE_ACLS,
        _K.DELETE_ACLS,
        _K.ALTER_CONFIGS,
        _K.INCREMENTAL_ALTER_CONFIGS,
        _K.ALTER_REPLICA_LOG_DIRS,
        _K.CREATE_PARTITIONS,
        _K.CREATE_DELEGATION_TOKEN,
        _K.RENEW_DELEGATION_TOKEN,
        _K.EXPIRE_DELEGATION_TOKEN,
        _K.DELETE_GROUPS,
        _K.OFFSET_DELETE,
        _K.ELECT_LEADERS,
        _K.ALTER_PARTITION_REASSIGNMENTS,
        _K.ALTER_CLIENT_QUOTAS,
        _K.ALTER_USER_SCRAM_CREDENTIALS,
        _K.UPDATE_FEATURES,
        _K.UNREGISTER_BROKER,
        _K.ALTER_SHARE_GROUP_OFFSETS,
        _K.DELETE_SHARE_GROUP_OFFSETS,
    }
)
"""Changes that people and tools make, rarely; the others are those of running consumers and producers."""


def is_change(api_key: int, message: Any) -> bool:
    """Whether a request is a state change; `message` is None if its body was not read: it may have been one."""
    if api_key not in _MEMBERSHIP or message is None:
        return api_key in CHANGING
    return message.member_epoch <= 0 or any(getattr(message, field, None) is not None for field in _SUBSCRIPTION)
