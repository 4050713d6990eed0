"""The server's own settings by Kafka's names, as DescribeConfigs of a broker lists them."""

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

    Settings of the first listener have Kafka's plain name; those of other listeners are `listener.name.NAME.key`,
    and are listed where the value differs.
    """
    configs = list(_numbers_of(plan.server))
    if plan.listeners:
        first = list(_numbers_of(plan.listeners[0].settings))
        configs += first
        for listener in plan.listeners[1:]:
            prefix = f"listener.name.{listener.name.lower()}."
            configs += [
                own._replace(name=prefix + own.name)
                for own, other in zip(_numbers_of(listener.settings), first, strict=True)
                if own.value != other.value
            ]
    return configs


def _numbers_of(settings: Any) -> Iterator[DescribedConfig]:
    for spec in specs_of(type(settings)).values():
        # Settings with a name of klamm's own have that as `kafka` too.
        if spec.kafka is not None and "." in spec.kafka and spec.kind in _NUMBERS:
            yield DescribedConfig(spec.kafka, getattr(settings, spec.attribute), spec.default, spec.kind, spec.doc)
