"""`LiveSettings`: the settings of a broker, some of which change while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from klamm import ErrorCode, KafkaError
from klamm.config import check_value, specs_of
from klamm_broker.broker_settings import BrokerSettings

DYNAMIC: Final = {spec.name: spec for spec in specs_of(BrokerSettings).values() if spec.dynamic}
"""The settings that change while the broker runs, by Kafka's name. The configs that topics inherit are not in it."""


class LiveSettings:
    """The settings in force. A change replaces `current` as a whole, and then calls each subscriber with the new
    settings.

    `static` has the settings of the configuration file. Any thread may read; callers make one change at a time.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.current = settings
        self.static = settings
        self._subscribers: list[Callable[[BrokerSettings], None]] = []

    def subscribe(self, call: Callable[[BrokerSettings], None]) -> None:
        """Call `call` with the new settings after each change."""
        self._subscribers.append(call)

    def with_values(self, values: Mapping[str, str]) -> BrokerSettings:
        """Return the static settings, with these values replaced. Raises KafkaError(INVALID_CONFIG)."""
        changes = {}
        for name, text in values.items():
            spec = DYNAMIC[name]
            try:
                changes[spec.attribute] = check_value(spec, text.strip(), Path(), lenient=True)
            except ValueError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} {error}") from error
        return replace(self.static, **changes)

    def take(self, settings: BrokerSettings) -> None:
        """Put new settings into effect."""
        if settings == self.current:
            return
        self.current = settings
        for call in self._subscribers:
            call(settings)
