"""`Controlled`: the server that the HTTP API controls, as its actions use it."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from klamm import ServerServices
from klamm.testing import HELPER_CLIENT_ID, Admin, ClusterAdmin, RawClient

_MAX_WAIT_S: Final = 60.0


class Controlled:
    """Any thread may call it. What the server lacks raises LookupError."""

    def __init__(self, services: ServerServices) -> None:
        self.services = services
        several = any(one.node for one in services.listeners.values())
        clock = services.clock
        self.admin = ClusterAdmin(self._connect, _connect_to, clock) if several else Admin(self._connect, clock)

    def close(self) -> None:
        """Close the client connection to the server."""
        self.admin.close()

    def _connect(self) -> RawClient:
        listeners = [one for one in self.services.listeners.values() if one.security_protocol == "PLAINTEXT"]
        if not listeners:
            raise LookupError(
                "no listener is open to every client; add one with transport plaintext and without authenticator"
            )
        # A node may be stopped.
        for listener in listeners[:-1]:
            with contextlib.suppress(ConnectionError):
                return _connect_to(listener.bound)
        return _connect_to(listeners[-1].bound)

    @property
    def faults(self) -> Any:
        """The rules of the filter `faults`."""
        return self._shared("faults", 'no listener has the part "faults" in filters')

    @property
    def recording(self) -> Any:
        """The recording of the observer `recording`."""
        return self._shared("recording", 'no listener has the part "recording" in observers')

    @property
    def nodes(self) -> Any:
        """The nodes of the broker."""
        return self._shared("nodes", "this server has no broker, and so no nodes")

    def _shared(self, name: str, problem: str) -> Any:
        def missing() -> Any:
            raise LookupError(problem)

        return self.services.shared.once(f"klamm.{name}", missing)


class Actions:
    """Base of the classes whose methods answer requests; arguments and results are JSON values.

    Bad requests raise ValueError, TypeError, LookupError, TimeoutError or KafkaError.
    """

    def __init__(self, server: Controlled) -> None:
        self._server = server


def limited(timeout_s: float) -> float:
    """The seconds that a request may wait."""
    return min(timeout_s, _MAX_WAIT_S)


def _connect_to(address: tuple[str, int]) -> RawClient:
    return RawClient(address, client_id=HELPER_CLIENT_ID)
