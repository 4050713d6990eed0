"""Server extensions: services beside the listeners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from klamm.api.context import ServerServices
from klamm.api.part import Part

_Host: TypeAlias = "ServerServices"


class ServerExtension(Part[_Host]):
    """A service beside the listeners, e.g. an exporter of metrics; `[server] extensions` names it.

    It is opened after every listener is bound and its parts are open, and closed after all requests have ended.
    """

    def ready(self) -> None:
        """Every listener answers from now on. Raising stops the start."""

    def stopping(self) -> None:
        """Called when the server begins to stop: it accepts no more connections."""

    def describe(self) -> str:
        """One line for the start message of `klamm serve`, e.g. the address it listens on."""
        return ""

    def ready_file_entries(self) -> Mapping[str, object]:
        """Return the extension's entries for the file of `klamm serve --ready-file`, e.g. its address, as JSON."""
        return {}
