"""The settings of a broker that limit what clients leave behind: klamm's own keys."""

from __future__ import annotations

from dataclasses import dataclass

from klamm import setting
from klamm_broker.fetch_session_settings import FetchSessionSettings


# Without slots, as a class may have several bases like this one.
@dataclass(frozen=True, kw_only=True)
class StateLimitSettings(FetchSessionSettings):
    """Part of `BrokerSettings`."""

    state_max_share_per_principal: float = setting(
        0.5,
        name="state.max.share.per.principal",
        minimum=0,
        maximum=1,
        doc="The part that one principal, or one address without authentication, may have of each table that has a"
        " total. klamm's own key.",
    )
    group_max_bytes_total: int = setting(
        256 * 1_048_576,
        name="group.max.bytes.total",
        minimum=1,
        doc="Most bytes of all groups, without members and offsets. klamm's own key.",
    )
    group_members_max_bytes: int = setting(
        256 * 1_048_576,
        name="group.members.max.bytes",
        minimum=1,
        doc="Most bytes of the members of all groups, with subscriptions and assignments. klamm's own key.",
    )
    offsets_max_bytes: int = setting(
        256 * 1_048_576,
        name="offsets.max.bytes",
        minimum=1,
        doc="Most bytes of the committed offsets of all groups. klamm's own key.",
    )
    share_partitions_max_bytes: int = setting(
        512 * 1_048_576,
        name="share.partitions.max.bytes",
        minimum=1,
        doc="Most bytes of what share groups keep of the partitions that they read. klamm's own key.",
    )
    transactional_id_max_bytes: int = setting(
        256 * 1_048_576,
        name="transactional.id.max.bytes",
        minimum=1,
        doc="Most bytes of all transactional ids. klamm's own key.",
    )
    acl_max_bytes: int = setting(
        256 * 1_048_576, name="acl.max.bytes", minimum=1, doc="Most bytes of all ACLs. klamm's own key."
    )
    scram_credential_max_bytes: int = setting(
        256 * 1_048_576,
        name="scram.credential.max.bytes",
        minimum=1,
        doc="Most bytes of all SCRAM credentials. klamm's own key.",
    )
    client_quota_max_bytes: int = setting(
        256 * 1_048_576,
        name="client.quota.max.bytes",
        minimum=1,
        doc="Most bytes of all entities with client quotas. klamm's own key.",
    )
    delegation_token_max_bytes: int = setting(
        256 * 1_048_576,
        name="delegation.token.max.bytes",
        minimum=1,
        doc="Most bytes of all delegation tokens. klamm's own key.",
    )
    topic_max_bytes: int = setting(
        2048 * 1_048_576,
        name="topic.max.bytes",
        minimum=1,
        doc="Most bytes of all topics, 8 KiB for each partition. klamm's own key.",
    )
    config_max_bytes: int = setting(
        256 * 1_048_576,
        name="config.max.bytes",
        minimum=1,
        doc="Most bytes of all configs of groups, brokers and metrics subscriptions. klamm's own key.",
    )
