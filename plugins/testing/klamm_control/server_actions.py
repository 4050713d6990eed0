"""`ServerActions`: actions on the whole server, its recorded requests and its time."""

from __future__ import annotations

import contextlib
from typing import Annotated

from klamm import __version__
from klamm.testing import read_timeline
from klamm_control.controlled import Actions, limited
from klamm_control.routes import route
from klamm_control.values import About, Count, Done, RecordedRequest, Timeline, TimeoutS, WallTime


class ServerActions(Actions):
    """Actions on the whole server: addresses, recorded requests, time."""

    @route("GET", "/")
    def about(self) -> About:
        """Return the version and the addresses of the server."""
        listeners = {name: str(one.bound) for name, one in self._server.services.listeners.items()}
        return {"version": __version__, "listeners": listeners, "bootstrap": self._server.bootstrap}

    @route("GET", "/requests")
    def requests(
        self, api: str | None = None, count: Count = None, timeout_s: TimeoutS = 10.0
    ) -> list[RecordedRequest]:
        """Return completed requests of clients, of all APIs or of one, oldest first."""
        found = self._server.recording.requests(api, count=count, timeout_s=limited(timeout_s))
        return [one.to_json() for one in found]

    @route("DELETE", "/requests")
    def forget_requests(self) -> Done:
        """Drop the recorded requests. The timeline begins now."""
        self._server.recording.clear()
        self._server.forgotten_ns = self._server.services.clock.monotonic_ns()
        return {}

    @route("GET", "/timeline")
    def timeline(
        self,
        title: str = "",
        failure: Annotated[str, "The reason why a test fails, for the last line."] = "",
        columns: Annotated[int, "Characters in a line of the text."] = 80,
    ) -> Timeline:
        """Return the timeline as text and as a page of HTML, e.g. for the report of a failed test."""
        services, since_ns = self._server.services, self._server.forgotten_ns
        found = read_timeline(services, title=title, failure=failure, since_ns=since_ns)
        return {"text": found.text(columns), "html": found.html()} if found else {"text": "", "html": ""}

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
            self._server.schema_registry.clear()
        with contextlib.suppress(LookupError):
            self.forget_requests()
        return {}
