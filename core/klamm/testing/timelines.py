"""`read_timeline`, which returns the timeline of a server to parts. A part has only the services of its server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.api.context import ServerServices

if TYPE_CHECKING:
    from klamm.testing.timeline.timeline import Timeline


def read_timeline(services: ServerServices, *, title: str = "", failure: str = "", since_ns: int = 0) -> Timeline:
    """Return the timeline of a server since a time of its monotonic clock. `EmbeddedServer.timeline` has more lines."""
    # Imported here, because most tests do not need it.
    from klamm.testing.timeline.timeline import Timeline, moments_of, read_sources

    found = [each for each in moments_of(read_sources(services.shared)) if each.started_ns >= since_ns]
    return Timeline.of(found, services.clock.monotonic_ns(), title=title, failure=failure)
