"""Settings of all types of groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from klamm_broker.consumer_group_settings import ConsumerGroupSettings
from klamm_broker.share_group_settings import ShareGroupSettings
from klamm_broker.streams_group_settings import StreamsGroupSettings


@dataclass(frozen=True, kw_only=True)
class GroupTypeSettings(ConsumerGroupSettings, ShareGroupSettings, StreamsGroupSettings):
    """The keys `group.consumer.*`, `group.share.*` and `group.streams.*` of `[broker]`."""

    def group_type_problems(self) -> Iterator[tuple[str, str]]:
        """Values that contradict each other."""
        yield from self.group_problems()
        yield from self.share_group_problems()
        yield from self.streams_group_problems()
