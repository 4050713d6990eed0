"""The life cycle of every part that a plugin provides, declared once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from klamm.api.context import ListenerContext

Host = TypeVar("Host")


class Part(Generic[Host]):
    """The object that a plugin's factory makes: `__init__(settings)` → `open` → use, `reload`, `reconfigure` → `close`.

    The server calls these methods on the thread that starts, reloads or stops it, one at a time; a part calls its own
    parts (e.g. the mechanisms of `sasl`) in the same way. Other threads may use the part meanwhile, so `reload` and
    `reconfigure` replace shared state in one assignment. `Host` is the argument of `open`:

    | part | host | opened |
    | --- | --- | --- |
    | `RequestScheduler` | `ServerServices` | first, before any handler set |
    | `ApiSet` | `ServerContext` | when every listener is bound |
    | parts of a listener | `ListenerContext` | after the handler sets, in the order of `ListenerPlan` |
    | `SaslMechanism` | `SaslContext` | with the authenticator, after its credential stores |
    | `ServerExtension` | `ServerServices` | last, before the first request |

    `origin` is kind, name, distribution and version, as messages name the part; the server sets it once it is made.
    """

    origin = ""

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings

    def open(self, host: Host) -> None:
        """Get ready. May block. An exception stops the start; the message names the provider and the cause."""

    def reload(self) -> None:
        """Read files again, at SIGHUP. An exception keeps the old state; the error is logged and reported."""

    def reconfigure(self, settings: Any) -> bool:
        """Apply other settings that SIGHUP found for this part and return True; False leaves them to the next start.

        An exception keeps the old settings; the error is logged and reported.
        """
        return False

    def reconfigure_parts(self, settings: Any, parts: Mapping[str, tuple[Any, ...]]) -> bool:
        """Apply changed settings of this part's own parts, as `reconfigure` does: `parts` has the settings of all of
        them.

        They are grouped by the setting that names the parts, in its order; the parts themselves are the same as before.
        """
        return False

    def close(self) -> None:
        """Release the resources that `open` acquired. Called exactly once if `open` returned, in the opposite order of
        opening.
        """


_Host: TypeAlias = "ListenerContext"


class ListenerPart(Part[_Host]):
    """A part of one listener: an instance for each listener that names its provider."""
