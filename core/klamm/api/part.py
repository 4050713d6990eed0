"""The life cycle that all parts of plugins share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from klamm.api.context import ListenerContext

Host = TypeVar("Host")


class Part(Generic[Host]):
    """The object that a plugin's factory makes: `__init__(settings)` → `open` → use, `reload`, `reconfigure` → `close`.

    The server calls these methods one at a time, on the thread that starts, reloads or stops the server. A part with
    parts of its own (e.g. `sasl` with its mechanisms) calls their methods in the same way. If a reload removes a
    listener, the listener's parts are closed on a thread that waits for the end of the connections. Other threads may
    use the part meanwhile, so `reload` and `reconfigure` replace shared state in one assignment. `Host` is the argument
    of `open`:

    | part | host | opened |
    | --- | --- | --- |
    | `RequestScheduler` | `ServerServices` | first, before any handler set |
    | `ApiSet` | `ServerContext` | when every listener is bound |
    | parts of a listener | `ListenerContext` | after the handler sets, in the order of `ListenerPlan` |
    | `SaslMechanism` | `SaslContext` | with the authenticator, after its credential stores |
    | `ServerExtension` | `ServerServices` | last, before the first request |

    `settings` are the argument of the factory. `origin` names the part in messages: its kind, name, distribution and
    version. The server sets it after the factory has returned. `live_keys` are the keys that `reconfigure` can apply:
    other keys wait for the next start. None means that `reconfigure` decides about all keys together.
    """

    origin = ""
    live_keys: Collection[str] | None = None

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings

    def open(self, host: Host) -> None:
        """Prepare the part for use. May block. An exception stops the start; the message names provider and cause."""

    def reload(self) -> None:
        """Read files again, at SIGHUP.

        If this raises, the part must keep its old state. The error is logged and reported.
        """

    def reconfigure(self, settings: Any) -> bool:
        """Apply the changed settings that SIGHUP found for this part, and return True.

        If `live_keys` is not None, only those keys differ. Return False if the part can apply them only at the next
        start. If this raises, the part must keep its old settings. The error is logged and reported.
        """
        return False

    def reconfigure_parts(self, settings: Any, parts: Mapping[str, tuple[Any, ...]]) -> bool:
        """Apply changed settings of this part's own parts, and return as `reconfigure` does.

        `parts` maps each setting that names parts to the settings of the named parts, in the same order. The parts are
        the same as before.
        """
        return False

    def close(self) -> None:
        """Release the resources that `open` acquired. Called exactly once if `open` has returned.

        Parts are closed in the opposite order of opening.
        """


_Host: TypeAlias = "ListenerContext"


class ListenerPart(Part[_Host]):
    """A part of one listener. Each listener that names the provider gets a separate instance."""
