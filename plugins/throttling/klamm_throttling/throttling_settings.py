"""Settings of the throttle `client_quota`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from klamm import setting

DEFAULT_NAME: Final = "<default>"
"""The name of the default in settings, as in Kafka's tools."""
QUOTA_KEYS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")


def _check(all_quotas: Iterable[Mapping[str, float]]) -> str | None:
    for quotas in all_quotas:
        for key, value in quotas.items():
            if key not in QUOTA_KEYS:
                return f'"{key}" is not a quota; the quotas are {", ".join(QUOTA_KEYS)}'
            if not 0 < value < float("inf"):
                return f"{key} must be greater than 0"
    return None


def _check_names(table: dict[str, dict[str, float]]) -> str | None:
    if "" in table:
        return f'names must not be empty; the default is "{DEFAULT_NAME}"'
    return _check(table.values())


def _check_pairs(table: dict[str, dict[str, dict[str, float]]]) -> str | None:
    for clients in table.values():
        problem = _check_names(clients)
        if problem:
            return problem
    return 'names must not be empty; the default is "<default>"' if "" in table else None


@dataclass(frozen=True, slots=True)
class ClientQuotaSettings:
    """The table `[client_quota]`. The use at all listeners is counted together, so all have the same settings."""

    users: dict[str, dict[str, float]] = setting(
        {},
        doc='Quotas by user name; "<default>" is for each user without one. AlterClientQuotas overrides them.',
        check=_check_names,
        per_server=True,
    )
    clients: dict[str, dict[str, float]] = setting(
        {},
        doc='Quotas by client id; "<default>" is for each client id without one.',
        check=_check_names,
        per_server=True,
    )
    user_clients: dict[str, dict[str, dict[str, float]]] = setting(
        {}, doc="Quotas by user name and, below that, client id.", check=_check_pairs, per_server=True
    )
    quota_window_num: int = setting(
        11, doc="Number of samples over which rates are measured.", kafka="quota.window.num", minimum=1, per_server=True
    )
    quota_window_size_seconds: int = setting(
        1, doc="Time of one sample.", kafka="quota.window.size.seconds", minimum=1, per_server=True
    )
    controller_quota_window_num: int = setting(
        11,
        doc="Number of windows whose controller mutations may be used in one burst.",
        kafka="controller.quota.window.num",
        minimum=1,
        per_server=True,
    )
    controller_quota_window_size_seconds: int = setting(
        1, doc="Time of one of these windows.", kafka="controller.quota.window.size.seconds", minimum=1, per_server=True
    )
    max_tracked_clients: int = setting(
        10_000,
        doc="Maximum number of users and client ids whose use is kept in memory; further ones replace the oldest.",
        minimum=1,
        per_server=True,
    )
    metrics_max_clients: int = setting(
        100,
        doc="Number of users and client ids in metrics: those with the highest utilization.",
        minimum=0,
        per_server=True,
    )
