"""The contract of server extensions: services that a server runs in addition to its listeners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from klamm.api.context import ServerServices
from klamm.api.part import Part

_Host: TypeAlias = "ServerServices"


class ServerExtension(Part[_Host]):
    """A service in addition to the listeners, e.g. an exporter of metrics; `[server] extensions` names it.

    The server opens it after every listener is bound and its parts are open, and closes it after all requests have
    ended.
    """

    def ready(self) -> None:
        """Called when every listener answers. An exception stops the start."""

    def stopping(self) -> None:
        """Called when the server begins to stop: it accepts no more connections."""

    def describe(self) -> str:
        """Return one line for the start message of `klamm serve`, e.g. the address that the extension listens on."""
        return ""

    def ready_file_entries(self) -> Mapping[str, object]:
        """Return the extension's entries for the file of `klamm serve --ready-file`, e.g. its address, as JSON."""
        return {}
