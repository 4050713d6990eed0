"""All tables that clients can make grow, and their ledgers. Settings, metrics, docs and tests use this list. `Broker`
makes the ledgers; any thread may use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple, Protocol

from klamm import ErrorCode
from klamm.metrics import MetricsRegistry
from klamm.sasl import DELEGATION_TOKENS, SCRAM_CREDENTIALS
from klamm.shared import CLIENT_QUOTAS
from klamm.wire.api_keys import ApiKey
from klamm_broker.limits.ledger import Ledger


class StateTable(NamedTuple):
    """One table.

    `key` is the setting with the table's total in bytes. `content` describes the entries, for metrics and docs. `error`
    answers a new entry for which there is no room. `goes` says when entries are removed. `grows_by` names the APIs that
    make the table grow.
    """

    name: str
    key: str
    content: str
    error: ErrorCode
    goes: str
    grows_by: tuple[ApiKey, ...]

    @property
    def attribute(self) -> str:
        """Return the settings' field that has the total."""
        return self.key.replace(".", "_")


GROUPS: Final = StateTable(
    "groups",
    "group.max.bytes.total",
    "groups of all types: 4 KiB each, plus the name",
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    "10 minutes after its last member and offset, by `offsets.retention.check.interval.ms`; a share group when it is"
    " deleted",
    (
        ApiKey.JOIN_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ),
)
MEMBERS: Final = StateTable(
    "group members",
    "group.members.max.bytes",
    "members of groups: 4 KiB each, their names, subscriptions, classic protocols and assignments; topologies",
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    "with its session",
    (
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
    ),
)
OFFSETS: Final = StateTable(
    "offsets",
    "offsets.max.bytes",
    "committed offsets, and those of open transactions: 512 bytes each, the names, and metadata above 128 bytes",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    "after `offsets.retention.minutes`",
    (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT),
)
SHARE_PARTITIONS: Final = StateTable(
    "share partitions",
    "share.partitions.max.bytes",
    "partitions that share groups read: 3 KiB each, the group's name, and 256 bytes for each run of records in flight"
    " above 4",
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    "with its group or topic",
    (ApiKey.SHARE_FETCH, ApiKey.ALTER_SHARE_GROUP_OFFSETS),
)
TRANSACTIONAL_IDS: Final = StateTable(
    "transactional ids",
    "transactional.id.max.bytes",
    "transactional ids: 4 KiB each, the name, and partitions above 16",
    ErrorCode.POLICY_VIOLATION,
    "after `transactional.id.expiration.ms`",
    (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT),
)

TOPICS: Final = StateTable(
    "topics",
    "topic.max.bytes",
    "topics: 8 KiB for each partition, the name and the configs",
    ErrorCode.POLICY_VIOLATION,
    "when it is deleted",
    (
        ApiKey.METADATA,
        ApiKey.CREATE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
    ),
)
CONFIGS: Final = StateTable(
    "configs",
    "config.max.bytes",
    "configs of groups, brokers and metrics subscriptions: 1 KiB each, the name and the value",
    ErrorCode.POLICY_VIOLATION,
    "when it is deleted",
    (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS),
)
ACLS: Final = StateTable(
    "ACLs",
    "acl.max.bytes",
    "ACLs: 1 KiB each, and their text",
    ErrorCode.POLICY_VIOLATION,
    "when it is deleted",
    (ApiKey.CREATE_ACLS,),
)
SCRAM_USERS: Final = StateTable(
    "SCRAM credentials",
    "scram.credential.max.bytes",
    "SCRAM credentials: 1 KiB each, and their text",
    ErrorCode.POLICY_VIOLATION,
    "when it is deleted",
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS,),
)
QUOTAS: Final = StateTable(
    "client quotas",
    "client.quota.max.bytes",
    "entities with quotas: 1 KiB each, and their text",
    ErrorCode.POLICY_VIOLATION,
    "when its last quota is removed",
    (ApiKey.ALTER_CLIENT_QUOTAS,),
)
TOKENS: Final = StateTable(
    "delegation tokens",
    "delegation.token.max.bytes",
    "delegation tokens: 1 KiB each, and their text with the names of renewers",
    ErrorCode.POLICY_VIOLATION,
    "when it expires",
    (ApiKey.CREATE_DELEGATION_TOKEN,),
)

TABLES: Final = (
    GROUPS,
    MEMBERS,
    OFFSETS,
    SHARE_PARTITIONS,
    TRANSACTIONAL_IDS,
    TOPICS,
    CONFIGS,
    ACLS,
    SCRAM_USERS,
    QUOTAS,
    TOKENS,
)

_METRICS: Final = "klamm:type=StateLimits,name="


class Totals(Protocol):
    """The settings of the limits: an attribute with the total of each table, and the share of an owner."""

    @property
    def state_max_share_per_principal(self) -> float: ...


class StateLimits:
    """The ledger of each table, and their metrics."""

    def __init__(self, totals: Totals, metrics: MetricsRegistry) -> None:
        self._ledgers = {table: _ledger(table, totals) for table in TABLES}
        self._register(metrics)

    def __getitem__(self, table: StateTable) -> Ledger:
        return self._ledgers[table]

    def shared(self) -> dict[str, Ledger]:
        """Return the ledgers of the server's shared tables, by table name."""
        tables = {"acls": ACLS, SCRAM_CREDENTIALS: SCRAM_USERS, CLIENT_QUOTAS: QUOTAS, DELEGATION_TOKENS: TOKENS}
        return {name: self[table] for name, table in tables.items()}

    def _register(self, metrics: MetricsRegistry) -> None:
        def of_tables(read: Callable[[Ledger], int]) -> Callable[[], Iterator[tuple[dict[str, str], float]]]:
            return lambda: (({"table": table.name}, read(ledger)) for table, ledger in self._ledgers.items())

        readings: tuple[tuple[str, Literal["gauge", "counter"], str, Callable[[Ledger], int]], ...] = (
            ("Used", "gauge", "Bytes in use of a table that clients can make grow.", lambda one: one.used),
            ("Limit", "gauge", "Maximum bytes of the table.", lambda one: one.total),
            ("LargestShare", "gauge", "Bytes of the principal with the largest share.", lambda one: one.largest_share),
            ("ShareLimit", "gauge", "Maximum bytes of a principal at present.", lambda one: one.present_share),
            ("RefusedPerSec", "counter", "Entries refused because a limit was reached.", lambda one: one.refused),
        )
        for name, kind, doc, read in readings:
            metrics.register(_METRICS + name, kind, doc, of_tables(read))


def _ledger(table: StateTable, totals: Totals) -> Ledger:
    total: int = getattr(totals, table.attribute)
    return Ledger(table.name, total, totals.state_max_share_per_principal, table.error)
