"""The entries of the event queues: each is one or more events, and knows how the writer's thread records it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klamm import Address, AdminEvent, KafkaPrincipal, RequestEvent
    from klamm_spark.observer.long_events import LongEvent

# `Client`, `Window` and `ListenerAudit`, whose module makes entries.
Client: TypeAlias = Any
Window: TypeAlias = Any
ListenerAudit: TypeAlias = Any


class Recorder(Protocol):
    """The object that makes lines of events: the `klamm_spark.observer.recorder.Recorder`."""

    def requests(self, client: Client, events: Sequence[RequestEvent | LongEvent], /) -> None: ...
    def change(self, client: Client, kept: RequestEvent | LongEvent, intent_id: str | None, /) -> None: ...
    def interrupted(self, intent: dict[str, Any], /) -> None: ...
    def window(self, client: Client, window: Window, /) -> None: ...
    def authentication(
        self, client: Client, action: str, reason: str, who: tuple[KafkaPrincipal, str], now_ns: int, /
    ) -> None: ...
    def opened(self, client: Client, now_ns: int, /) -> None: ...
    def closed(self, client: Client, reason: str, now_ns: int, /) -> None: ...
    def refused(self, listener: ListenerAudit, address: Address, reason: str, detail: str, now_ns: int, /) -> None: ...
    def admin_event(self, event: AdminEvent, /) -> None: ...


class Entry(Protocol):
    """An entry that waits in a queue."""

    def record(self, recorder: Recorder, /) -> None:
        """Add the lines of its events. Called on the writer's thread."""
        ...


class Requests(NamedTuple):
    """Requests of one connection that are recorded one by one."""

    client: Client
    events: Sequence[RequestEvent | LongEvent]

    def record(self, recorder: Recorder) -> None:
        recorder.requests(self.client, self.events)


class Change(NamedTuple):
    """A state change, and its intent if there is one."""

    client: Client
    event: RequestEvent | LongEvent
    intent_id: str | None

    def record(self, recorder: Recorder) -> None:
        recorder.change(self.client, self.event, self.intent_id)


class InterruptedChange(NamedTuple):
    """The intent of a state change whose outcome is unknown."""

    intent: dict[str, Any]

    def record(self, recorder: Recorder) -> None:
        recorder.interrupted(self.intent)


class EndedWindow(NamedTuple):
    """A second's worth of requests of one connection."""

    client: Client
    window: Window

    def record(self, recorder: Recorder) -> None:
        recorder.window(self.client, self.window)


class Authentication(NamedTuple):
    """A client has authenticated, or failed to: its principal then, and the one that it claimed."""

    client: Client
    action: str
    reason: str
    who: tuple[KafkaPrincipal, str]
    at_ns: int

    def record(self, recorder: Recorder) -> None:
        recorder.authentication(self.client, self.action, self.reason, self.who, self.at_ns)


class OpenedConnection(NamedTuple):
    """A connection became READY."""

    client: Client
    at_ns: int

    def record(self, recorder: Recorder) -> None:
        recorder.opened(self.client, self.at_ns)


class ClosedConnection(NamedTuple):
    """A connection is closed."""

    client: Client
    reason: str
    at_ns: int

    def record(self, recorder: Recorder) -> None:
        recorder.closed(self.client, self.reason, self.at_ns)


class RefusedConnection(NamedTuple):
    """A gate refused a connection."""

    listener: ListenerAudit
    address: Address
    reason: str
    detail: str
    at_ns: int

    def record(self, recorder: Recorder) -> None:
        recorder.refused(self.listener, self.address, self.reason, self.detail, self.at_ns)


class Administration(NamedTuple):
    """An administrative act."""

    event: AdminEvent

    def record(self, recorder: Recorder) -> None:
        recorder.admin_event(self.event)
