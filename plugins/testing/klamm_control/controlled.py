"""`Controlled`: the server that the HTTP API controls. `Actions`: the base of the classes whose methods answer
requests.

The threads of `ControlServer` call both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from klamm import ListenerContext, ServerServices
from klamm.testing import Acls, Users, admin_of

_MAX_WAIT_S: Final = 60.0


class Controlled:
    """The controlled server. Any thread may call it. It raises LookupError for a feature that the server lacks."""

    def __init__(self, services: ServerServices, ca_file: Path | None = None) -> None:
        """Create it. `ca_file` is the CA of a listener with TLS and SCRAM, whose users the API manages."""
        self.services = services
        self.forgotten_ns = 0
        self.admin = admin_of(services)
        self._users = None if ca_file is None else Users(self.admin, ca_file)

    def ready(self) -> None:
        """Create the user `admin`, if the server has users."""
        if self._users is not None:
            self._users.add("admin")

    def close(self) -> None:
        """Close the client connection to the server."""
        self.admin.close()

    @property
    def bootstraps(self) -> dict[str, str]:
        """For each listener, the addresses of all its nodes, joined by commas: clients' `bootstrap.servers`."""
        found: dict[str, list[str]] = {}
        for listener in self._listeners():
            found.setdefault(listener.configured_as, []).append(str(listener.bound))
        return {name: ",".join(addresses) for name, addresses in found.items()}

    @property
    def bootstrap(self) -> str:
        """Return the addresses of the listener with users; if there is none, those of the first listener."""
        names = [
            each.configured_as
            for each in self._listeners()
            if self._users is None or each.security_protocol == "SASL_SSL"
        ]
        if not names:
            raise LookupError("no listener has TLS and SASL")
        return self.bootstraps[names[0]]

    def _listeners(self) -> list[ListenerContext]:
        return list(self.services.listeners.values())

    @property
    def users(self) -> Users:
        """The users of the listener with TLS and SCRAM."""
        if self._users is None:
            raise LookupError("this server has no users; start it with --secure")
        return self._users

    @property
    def has_users(self) -> bool:
        return self._users is not None

    @property
    def acls(self) -> Acls:
        """The access control lists."""
        return Acls(self.admin)

    @property
    def faults(self) -> Any:
        """The rules of the filter `faults`."""
        return self._shared("faults", 'no listener has the part "faults" in filters')

    @property
    def recording(self) -> Any:
        """The recording of the observer `recording`."""
        return self._shared("recording", 'no listener has the part "recording" in observers')

    @property
    def schema_registry(self) -> Any:
        """The extension `schema_registry`."""
        return self._shared("schema_registry", 'the server has no extension "schema_registry"')

    @property
    def nodes(self) -> Any:
        """The nodes of the broker."""
        return self._shared("nodes", "this server has no broker, and so no nodes")

    def _shared(self, name: str, problem: str) -> Any:
        return self.services.shared.needed(f"klamm.{name}", problem)


class Actions:
    """The base of the classes whose methods answer requests, each on the thread of its HTTP connection.

    Arguments and results are JSON values. Invalid requests raise ValueError, TypeError, LookupError, TimeoutError or
    KafkaError.
    """

    def __init__(self, server: Controlled) -> None:
        self._server = server


def limited(timeout_s: float) -> float:
    """Return the seconds that a request may wait: `timeout_s`, but at most 60."""
    return min(timeout_s, _MAX_WAIT_S)
