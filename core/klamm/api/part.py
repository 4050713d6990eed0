"""The life cycle that everything a listener is made of shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klamm.api.context import ListenerContext


class ListenerPart:
    """Lifecycle that all per-listener providers share."""

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings

    def open(self, listener: ListenerContext) -> None:
        """Get ready. May block. Raising stops the start, with the provider's name and the cause."""

    def reload(self) -> None:
        """SIGHUP: read files again. Raising keeps what was there, and is logged."""

    def reconfigure(self, settings: Any) -> bool:
        """SIGHUP found other settings: take them, now, for what follows. False: they count from the next start.

        Raising keeps what was there, and is logged.
        """
        return False

    def close(self) -> None:
        """Give back what `open` took. Called exactly once if `open` returned."""
