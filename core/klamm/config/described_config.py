"""What is told of the server's own settings to who asks for a broker's configs, by Kafka's names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from klamm.api.described_config import DescribedConfig
from klamm.config.setting import specs_of

if TYPE_CHECKING:
    from klamm.config.plan import ServerPlan

_NUMBERS: Final = (bool, int, float)


def described_configs(plan: ServerPlan) -> list[DescribedConfig]:
    """The numbers among the settings of the server and its listeners that Kafka has a name for.

    A listener's are told by the plain name for the first listener, and as `listener.name.NAME.key` for others where
    they have another value.
    """
    told = list(_numbers_of(plan.server))
    if plan.listeners:
        first = list(_numbers_of(plan.listeners[0].settings))
        told += first
        for listener in plan.listeners[1:]:
            prefix = f"listener.name.{listener.name.lower()}."
            told += [
                own._replace(name=prefix + own.name)
                for own, other in zip(_numbers_of(listener.settings), first, strict=True)
                if own.value != other.value
            ]
    return told


def _numbers_of(settings: Any) -> Iterator[DescribedConfig]:
    for spec in specs_of(type(settings)).values():
        # Settings with a name of klamm's own have that as `kafka` too.
        if spec.kafka is not None and "." in spec.kafka and spec.kind in _NUMBERS:
            yield DescribedConfig(spec.kafka, getattr(settings, spec.attribute), spec.default, spec.kind, spec.doc)
