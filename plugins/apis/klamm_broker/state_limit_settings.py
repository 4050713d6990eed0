"""The settings that limit produced batches, the state that clients create, and clients' sessions."""

from __future__ import annotations

from dataclasses import dataclass

from klamm import setting
from klamm.wire.batch_limits import BatchLimits
from klamm.wire.compression import MAX_UNCOMPRESSED_BYTES
from klamm_broker.configs.topic_config import LARGEST_RECORD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class RecordSettings:
    """The keys of `[broker]` for produced batches: a part of `BrokerSettings`."""

    max_decompressed_message_bytes: int = setting(
        LARGEST_RECORD_BYTES,
        minimum=1,
        maximum=LARGEST_RECORD_BYTES,
        doc="Largest record of a compressed batch in bytes, decompressed; a larger one is refused with INVALID_RECORD.",
    )
    record_validation: str = setting(
        "records",
        choices=("records", "headers"),
        doc="Depth of the check of a produced batch: all its records, or only its header, which trusts producers. "
        "klamm's own key.",
    )
    record_max_count: int = setting(
        500_000,
        minimum=1,
        doc="Maximum number of records in a produced batch; more are refused with MESSAGE_TOO_LARGE. klamm's own key.",
    )
    record_max_unpacked_bytes: int = setting(
        MAX_UNCOMPRESSED_BYTES,
        minimum=1024 * 1024,
        maximum=MAX_UNCOMPRESSED_BYTES,
        doc="Maximum bytes of a compressed batch when it is decompressed. klamm's own key.",
    )
    record_max_unpacked_ratio: int = setting(
        20_000,
        minimum=1,
        doc="Maximum ratio of a batch's decompressed to its compressed size; checked above 32 MiB. klamm's own key.",
    )

    @property
    def batch_limits(self) -> BatchLimits:
        """Return the limits of one produced batch."""
        return BatchLimits(self.record_max_count, self.record_max_unpacked_bytes, self.record_max_unpacked_ratio)


# No slots: `BrokerSettings` inherits from several such classes, and only it has instances.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class FetchSessionSettings:
    """The keys of `[broker]` for fetch sessions: a part of `BrokerSettings`."""

    max_incremental_fetch_session_cache_slots: int = setting(
        1000,
        minimum=0,
        doc="Maximum number of incremental fetch sessions (KIP-227).",
    )
    fetch_session_max_partitions: int = setting(
        500_000,
        minimum=0,
        doc="Maximum number of partitions in all incremental fetch sessions, and in all share sessions."
        " klamm's own key.",
    )


def _total_bytes(what: str, mib: int = 256) -> int:
    """Return the setting for the total size of a table in bytes."""
    total: int = setting(mib * 1_048_576, minimum=1, doc=f"Maximum bytes of {what}. klamm's own key.")
    return total


# No slots: `BrokerSettings` inherits from several such classes, and only it has instances.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class StateLimitSettings(FetchSessionSettings):
    """The keys of `[broker]` for the state that clients create: a part of `BrokerSettings`."""

    state_max_share_per_principal: float = setting(
        0.5,
        minimum=0,
        maximum=1,
        doc="Share that one principal, or one address without authentication, may have of each table whose total"
        " size is limited. klamm's own key.",
    )
    group_max_bytes_total: int = _total_bytes("all groups, without members and offsets")
    group_members_max_bytes: int = _total_bytes("the members of all groups, with subscriptions and assignments")
    offsets_max_bytes: int = _total_bytes("the committed offsets of all groups")
    share_partitions_max_bytes: int = _total_bytes(
        "the state that share groups keep for the partitions that they read", mib=512
    )
    transactional_id_max_bytes: int = _total_bytes("all transactional ids")
    acl_max_bytes: int = _total_bytes("all ACLs")
    scram_credential_max_bytes: int = _total_bytes("all SCRAM credentials")
    client_quota_max_bytes: int = _total_bytes("all entities with client quotas")
    delegation_token_max_bytes: int = _total_bytes("all delegation tokens")
    topic_max_bytes: int = _total_bytes("all topics, 8 KiB for each partition", mib=2048)
    config_max_bytes: int = _total_bytes("all configs of groups, brokers and metrics subscriptions")
