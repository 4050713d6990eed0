"""`admin_of`, which returns an `Admin` for the server that a part belongs to."""

from __future__ import annotations

import contextlib

from klamm.api.context import ServerServices
from klamm.testing.admin import HELPER_CLIENT_ID, Admin
from klamm.testing.cluster_admin import ClusterAdmin
from klamm.testing.raw_client import RawClient


def admin_of(services: ServerServices) -> Admin:
    """Return an `Admin` for an extension's own server, over a listener that is open to every client.

    The `Admin` connects at its first call, which raises LookupError if there is no such listener. Make that call after
    the server has become ready.
    """

    def connect() -> RawClient:
        listeners = [one for one in services.listeners.values() if one.security_protocol == "PLAINTEXT"]
        if not listeners:
            raise LookupError(
                "no listener is open to every client; add one with transport plaintext and without authenticator"
            )
        # Try all addresses, because a node may be stopped.
        for listener in listeners[:-1]:
            with contextlib.suppress(ConnectionError):
                return _connect_to(listener.bound)
        return _connect_to(listeners[-1].bound)

    if any(one.node for one in services.listeners.values()):
        return ClusterAdmin(connect, _connect_to, services.clock)
    return Admin(connect, services.clock)


def _connect_to(address: tuple[str, int]) -> RawClient:
    return RawClient(address, client_id=HELPER_CLIENT_ID)
