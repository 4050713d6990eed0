"""How authentications end, by Kafka's names of them (`Selector.SelectorMetrics`)."""

from __future__ import annotations

from typing import Final

from klamm import MetricsRegistry

_GROUP: Final = "kafka.server:type=socket-server-metrics,name="


class AuthenticationMetrics:
    """Counters of one listener."""

    def __init__(self, registry: MetricsRegistry, listener: str) -> None:
        self._succeeded = registry.counter(
            _GROUP + "successful-authentication-total", "Connections that authenticated.", listener=listener
        )
        self._no_reauth = registry.counter(
            _GROUP + "successful-authentication-no-reauth-total",
            "Connections that authenticated and cannot do so again.",
            listener=listener,
        )
        self._failed = registry.counter(
            _GROUP + "failed-authentication-total", "Connections that failed to authenticate.", listener=listener
        )
        self._succeeded_again = registry.counter(
            _GROUP + "successful-reauthentication-total", "Re-authentications that succeeded.", listener=listener
        )
        self._failed_again = registry.counter(
            _GROUP + "failed-reauthentication-total", "Re-authentications that failed.", listener=listener
        )

    def succeeded(self, *, again: bool, knows_sessions: bool) -> None:
        """A client is authenticated; `knows_sessions`: it speaks a version that tells how long (KIP-368)."""
        (self._succeeded_again if again else self._succeeded).add()
        if not again and not knows_sessions:
            self._no_reauth.add()

    def failed(self, *, again: bool) -> None:
        """A client failed."""
        (self._failed_again if again else self._failed).add()
