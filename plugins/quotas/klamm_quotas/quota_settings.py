"""The settings of the connection gates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from klamm import setting
from klamm.config import CLUSTER_WIDE, check_networks, specs_of
from klamm.shared import IPV6_SOURCE_PREFIX_LENGTH

UNLIMITED: Final = 2_147_483_647
"""Kafka's default for all limits of connections."""


def _ipv6_prefix_length(*, per_server: bool) -> Any:
    return setting(
        IPV6_SOURCE_PREFIX_LENGTH,
        doc="IPv6 addresses with this many leading bits in common count as one address; with 128 each address"
        " counts separately, as in Kafka.",
        minimum=1,
        maximum=128,
        per_server=per_server,
    )


def live_keys_of(settings: type) -> frozenset[str]:
    """Return the keys that a gate applies while it runs: all but `ipv6_prefix_length`, because counts by the earlier
    prefix remain.
    """
    return frozenset(specs_of(settings)) - {"ipv6_prefix_length"}


def _check_limits(overrides: dict[str, int]) -> str | None:
    for network, limit in overrides.items():
        if limit < 0:
            return f'the limit of "{network}" must not be negative'
    return check_networks(overrides)


def _check_rates(overrides: dict[str, int]) -> str | None:
    for network, limit in overrides.items():
        if limit < 1:
            return f'the rate of "{network}" must be at least 1'
    return check_networks(overrides)


@dataclass(frozen=True, slots=True)
class ConnectionQuotaSettings:
    """`[connection_quota]`, `[listeners.NAME.connection_quota]`."""

    max_connections_per_ip: int = setting(
        UNLIMITED,
        doc="Maximum connections of one address, on all listeners together; further ones are closed at once.",
        kafka="max.connections.per.ip",
        minimum=0,
        dynamic=CLUSTER_WIDE,
    )
    overrides: dict[str, int] = setting(
        {},
        doc="Other limits for some addresses or CIDR networks; the longest matching prefix applies.",
        kafka="max.connections.per.ip.overrides",
        check=_check_limits,
        dynamic=CLUSTER_WIDE,
    )
    max_connections: int = setting(
        UNLIMITED,
        doc="Maximum connections of the listener; at the limit it accepts no more until one is closed.",
        kafka="listener.name.NAME.max.connections",
        minimum=1,
        dynamic=CLUSTER_WIDE,
    )
    broker_max_connections: int = setting(
        UNLIMITED,
        doc="Maximum connections of all listeners together; at the limit only a protected listener accepts more.",
        kafka="max.connections",
        per_server=True,
        minimum=1,
        dynamic=CLUSTER_WIDE,
    )
    protected: bool = setting(
        False,
        doc="Exempt the listener from `broker_max_connections`: for each connection beyond the limit another "
        "listener closes its least recently used one.",
        kafka="inter.broker.listener.name",
    )
    ipv6_prefix_length: int = _ipv6_prefix_length(per_server=True)


@dataclass(frozen=True, slots=True)
class CreationRateSettings:
    """`[creation_rate]`, `[listeners.NAME.creation_rate]`; rates are connections per second."""

    connection_creation_rate: int = setting(
        UNLIMITED,
        doc="Rate at which one address may connect, to all listeners together; further connections are closed after a"
        " delay. AlterClientQuotas of the entity `ip` overrides it.",
        kafka="connection_creation_rate",
        minimum=1,
    )
    overrides: dict[str, int] = setting(
        {},
        doc="Other rates for some addresses or CIDR networks; the longest matching prefix applies.",
        check=_check_rates,
    )
    max_connection_creation_rate: int = setting(
        UNLIMITED,
        doc="Rate at which the listener accepts; beyond it, it waits.",
        kafka="listener.name.NAME.max.connection.creation.rate",
        minimum=1,
        dynamic=CLUSTER_WIDE,
    )
    broker_max_connection_creation_rate: int = setting(
        UNLIMITED,
        doc="Rate at which all listeners together accept connections; beyond it, all except protected ones wait.",
        kafka="max.connection.creation.rate",
        per_server=True,
        minimum=1,
        dynamic=CLUSTER_WIDE,
    )
    protected: bool = setting(
        False,
        doc="Exempt the listener from `broker_max_connection_creation_rate`.",
        kafka="inter.broker.listener.name",
    )
    quota_window_num: int = setting(
        11, doc="Number of samples over which rates are measured.", kafka="quota.window.num", minimum=1
    )
    quota_window_size_seconds: int = setting(
        1, doc="Time of one sample, and the longest delay.", kafka="quota.window.size.seconds", minimum=1
    )
    ipv6_prefix_length: int = _ipv6_prefix_length(per_server=True)


@dataclass(frozen=True, slots=True)
class HandshakeLimitSettings:
    """`[listeners.NAME.handshake_limit]`."""

    max_handshakes: int = setting(
        UNLIMITED,
        doc="Maximum connections of the listener that are in their handshake or authentication at one time; further "
        "ones"
        " wait to be accepted.",
        minimum=1,
    )
    max_handshakes_per_ip: int = setting(
        UNLIMITED, doc="Maximum of these connections from one address; further ones are closed at once.", minimum=1
    )
    ipv6_prefix_length: int = _ipv6_prefix_length(per_server=False)


@dataclass(frozen=True, slots=True)
class AuthenticationPenaltySettings:
    """`[listeners.NAME.authentication_penalty]`."""

    allowed_failures: int = setting(
        5,
        doc="Number of failed handshakes and authentications of one address, on all listeners together, after which "
        "it is refused.",
        minimum=0,
    )
    initial_penalty_ms: int = setting(
        1000,
        doc="Time for which an address is refused when it first exceeds that number; each further failure doubles it.",
        minimum=1,
    )
    max_penalty_ms: int = setting(60_000, doc="The longest time for which an address is refused.", minimum=1)
    forget_after_ms: int = setting(600_000, doc="Failures are forgotten after this time without one.", minimum=1)
    delay_ms: int = setting(
        1000, doc="Delay after which a refused connection is closed; 0 closes it at once.", minimum=0
    )
    exempt: tuple[str, ...] = setting(
        (), doc="Addresses and CIDR networks that are never refused, e.g. of a proxy.", check=check_networks
    )
    max_tracked_addresses: int = setting(
        10_000,
        doc="Maximum number of addresses whose failures are kept in memory; further ones replace the oldest.",
        minimum=1,
    )
    ipv6_prefix_length: int = _ipv6_prefix_length(per_server=True)
