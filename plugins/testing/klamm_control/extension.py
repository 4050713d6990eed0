"""`Control`: the extension `control`, with its settings."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from klamm import ServerExtension, ServerServices, setting
from klamm.config import parse_host_port
from klamm_control.controlled import Controlled
from klamm_control.every_action import ACTIONS
from klamm_control.http import ControlServer
from klamm_control.openapi import Description


def endpoint(text: str) -> tuple[str, int]:
    """Return the host and the port in `HOST:PORT`. Raises ValueError if this is invalid, or no loopback address."""
    host, port = parse_host_port(text)
    if not ipaddress.ip_address(host).is_loopback:
        raise ValueError
    return host, port


def _check_endpoint(text: str) -> str | None:
    try:
        endpoint(text)
    except ValueError:
        return f'must be a loopback address and a port, e.g. 127.0.0.1:0, not "{text}"'
    return None


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """`[control]`."""

    bind: str = setting(
        "127.0.0.1:0", doc="Address to listen on: a loopback address and a port.", check=_check_endpoint
    )
    token: str | None = setting(
        None, doc="Bearer token of requests; if unset, a random one, which the ready file names.", secret=True
    )
    ca_file: Path | None = setting(
        None,
        doc="Certificate of the authority of a listener with TLS and SCRAM, for tests. The server creates the user"
        " `admin` with the password `secret`, and client settings name the file.",
    )


class Control(ServerExtension):
    """The extension `control`. It serves from the time when all listeners are ready until the server stops."""

    def open(self, server: ServerServices) -> None:
        """Bind the address. Raises OSError."""
        settings: ControlSettings = self.settings
        self._token = settings.token or server.random_bytes(16).hex()
        self._server = Controlled(server, settings.ca_file)
        parts = [*(kind(self._server) for kind in ACTIONS), Description(ACTIONS)]
        self._http = ControlServer(endpoint(settings.bind), self._token, parts)

    def ready(self) -> None:
        self._server.ready()
        self._http.start()

    def stopping(self) -> None:
        self._http.stop()

    def close(self) -> None:
        self._http.close()
        self._server.close()

    @property
    def url(self) -> str:
        """The base URL."""
        return self._http.url

    def describe(self) -> str:
        return self.url

    def ready_file_entries(self) -> Mapping[str, object]:
        return {"control": self.url, "token": self._token, "bootstrap": self._server.bootstrap}
