"""The settings that the group coordinator reads, by Kafka's names."""

from __future__ import annotations

from typing import Final, Protocol

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""Maximum time for which a new member's join waits: it has no member id yet and cannot send heartbeats. Fixed in Kafka
too.
"""
MAX_PENDING_JOINS: Final = 1000
"""Maximum number of a group's issued member ids whose members have not joined. Each id may be as long as a client id;
Kafka has no limit.
"""


class GroupSettings(Protocol):
    """`group.*` and `offsets.*` of the broker's settings."""

    @property
    def group_initial_rebalance_delay_ms(self) -> int: ...
    @property
    def group_min_session_timeout_ms(self) -> int: ...
    @property
    def group_max_session_timeout_ms(self) -> int: ...
    @property
    def group_max_size(self) -> int: ...
    @property
    def group_max_bytes(self) -> int: ...
    @property
    def group_consumer_max_size(self) -> int: ...
    @property
    def group_share_max_size(self) -> int: ...
    @property
    def group_streams_max_size(self) -> int: ...
    @property
    def group_consumer_assignors(self) -> tuple[str, ...]: ...
    @property
    def group_consumer_migration_policy(self) -> str: ...
    @property
    def group_consumer_regex_refresh_interval_ms(self) -> int: ...
    @property
    def offset_metadata_max_bytes(self) -> int: ...
    @property
    def offsets_retention_minutes(self) -> int: ...
    @property
    def offsets_retention_check_interval_ms(self) -> int: ...
