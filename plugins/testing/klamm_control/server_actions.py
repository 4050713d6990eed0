"""`ServerActions`: the server as a whole, its recorded requests and its time."""

from __future__ import annotations

import contextlib

from klamm_control.controlled import Actions, limited
from klamm_control.routes import route
from klamm_control.values import Addresses, Count, Done, RecordedRequest, TimeoutS, WallTime


class ServerActions(Actions):
    """Addresses, recorded requests, time."""

    @route("GET", "/")
    def about(self) -> Addresses:
        """The addresses of the listeners."""
        return {"listeners": {name: str(one.bound) for name, one in self._server.services.listeners.items()}}

    @route("GET", "/requests")
    def requests(
        self, api: str | None = None, count: Count = None, timeout_s: TimeoutS = 10.0
    ) -> list[RecordedRequest]:
        """Return the requests of clients that have ended, all or those of an API; oldest first."""
        found = self._server.recording.requests(api, count=count, timeout_s=limited(timeout_s))
        return [one.to_json() for one in found]

    @route("DELETE", "/requests")
    def forget_requests(self) -> Done:
        """Drop the recorded requests."""
        self._server.recording.clear()
        return {}

    @route("POST", "/time")
    def advance_ms(self, advance_ms: float) -> WallTime:
        """Move the server's time forward."""
        services = self._server.services
        advance = getattr(services.clock, "advance_ms", None)
        if advance is None:
            raise LookupError("the time of this server is the machine's; start it with --ephemeral")
        advance(advance_ms)
        services.scheduler.wake()
        return {"wall_ms": services.clock.wall_ms()}

    @route("POST", "/reset")
    def reset(self) -> Done:
        """Delete all topics and the groups without members, remove all faults, drop the recorded requests."""
        admin = self._server.admin
        admin.delete_topics(*admin.topics())
        admin.delete_groups(*(name for name, state in admin.groups().items() if state in ("Empty", "Dead")))
        with contextlib.suppress(LookupError):
            self._server.faults.clear()
        with contextlib.suppress(LookupError):
            self._server.recording.clear()
        return {}
