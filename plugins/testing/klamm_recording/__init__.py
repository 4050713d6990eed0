"""The observer `recording`, which keeps requests and responses for tests, and the command `klamm replay`."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_request_observers() -> Iterator[Provider]:
    """Yield the observer `recording`."""
    yield Provider(
        "recording",
        "klamm_recording.observer:Recorder",
        settings="klamm_recording.observer:RecordingSettings",
        summary="keeps the latest requests and their responses in memory; for tests",
    )


@hookimpl
def klamm_commands() -> Iterator[Provider]:
    """Yield the command `klamm replay`."""
    yield Provider("replay", "klamm_recording.replay:main", summary="send recorded requests to another server")
