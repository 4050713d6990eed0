"""The settings that the group coordinator reads, by Kafka's names."""

from __future__ import annotations

from typing import Final, Protocol

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long a new member's join may wait: it has no member id yet and cannot send heartbeats. Fixed in Kafka too."""


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
    def offset_metadata_max_bytes(self) -> int: ...
    @property
    def offsets_retention_minutes(self) -> int: ...
    @property
    def offsets_retention_check_interval_ms(self) -> int: ...
