"""Server extensions: what stands beside the listeners."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klamm.api.context import ServerServices


class ServerExtension(ABC):
    """Something that stands beside the listeners, e.g. an exporter of metrics; `[server] extensions` names it."""

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings

    @abstractmethod
    def open(self, server: ServerServices) -> None:
        """Every listener is bound and its parts are open; no request has come. Raising stops the start."""

    def ready(self) -> None:
        """Every listener answers from now on."""

    def stopping(self) -> None:
        """The server begins to stop: it accepts no more."""

    def describe(self) -> str:
        """What `klamm serve` says of it once the server is ready, e.g. the address it listens on."""
        return ""

    def reload(self) -> None:
        """SIGHUP: read files again. Raising keeps what was there, and is logged."""

    @abstractmethod
    def close(self) -> None:
        """Give back what `open` took. Called exactly once if `open` returned; requests have ended."""
