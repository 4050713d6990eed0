"""`Actions`: one method for each route of the HTTP API; arguments and results are JSON values."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from klamm import ServerServices
from klamm.testing import HELPER_CLIENT_ID, Admin, ClusterAdmin, Isolation, RawClient

_MAX_WAIT_S = 60.0


class Actions:
    """Any thread may call it. Bad requests raise ValueError, TypeError, LookupError, TimeoutError or KafkaError."""

    def __init__(self, services: ServerServices) -> None:
        self._services = services
        several = any(one.node for one in services.listeners.values())
        clock = services.clock
        self._admin = ClusterAdmin(self._connect, _connect_to, clock) if several else Admin(self._connect, clock)

    def close(self) -> None:
        """Close the client connection to this server."""
        self._admin.close()

    def _connect(self) -> RawClient:
        listeners = [one for one in self._services.listeners.values() if one.security_protocol == "PLAINTEXT"]
        if not listeners:
            raise LookupError(
                "no listener is open to every client; add one with transport plaintext and without authenticator"
            )
        # A node may be stopped.
        for listener in listeners[:-1]:
            with contextlib.suppress(ConnectionError):
                return _connect_to(listener.bound)
        return _connect_to(listeners[-1].bound)

    def about(self) -> dict[str, Any]:
        """The addresses of the listeners."""
        return {"listeners": {name: str(one.bound) for name, one in self._services.listeners.items()}}

    # ---- topics and records

    def topics(self) -> dict[str, int]:
        """The topics, each with its number of partitions."""
        return self._admin.topics()

    def create_topic(
        self, name: str | None = None, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> dict[str, str]:
        """Create a topic; without a name it gets a random one."""
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        self._admin.create_topic(name, partitions, configs)
        return {"name": name}

    def delete_topic(self, topic: str) -> dict[str, str]:
        """Delete a topic."""
        self._admin.delete_topics(topic)
        return {}

    def produce(
        self, topic: str, values: Sequence[str | None], key: str | None = None, partition: int = 0
    ) -> dict[str, int]:
        """Append records; returns the offset of the first."""
        return {"offset": self._admin.produce(topic, *values, key=key, partition=partition)}

    def consume(
        self,
        topic: str,
        count: str | None = None,
        timeout_s: str = "10",
        isolation: Isolation = "read_committed",
    ) -> list[dict[str, Any]]:
        """Return the records of a topic, or `count` of them as soon as they are there."""
        wanted = None if count is None else int(count)
        found = self._admin.consume(topic, wanted, isolation=isolation, timeout_s=_wait(timeout_s))
        return [
            {
                "partition": one.partition,
                "offset": one.offset,
                "timestamp_ms": one.timestamp_ms,
                "key": _text(one.key),
                "value": _text(one.value),
                "headers": [[name, _text(content)] for name, content in one.headers],
            }
            for one in found
        ]

    # ---- faults

    def _book(self) -> Any:
        return self._shared("faults", "filters")

    def faults(self) -> list[dict[str, Any]]:
        """The active rules."""
        return [_fault(one) for one in self._book().faults]

    def add_fault(self, kind: str = "", **options: Any) -> dict[str, Any]:
        """Add a rule."""
        return _fault(self._book().add(kind, **options))

    def clear_faults(self) -> dict[str, Any]:
        """Remove all rules."""
        self._book().clear()
        return {}

    def fault(self, name: str, wait: str = "0", timeout_s: str = "10") -> dict[str, Any]:
        """One rule; with `wait`, once it has fired that many times."""
        fault = self._fault_of(name)
        if int(wait):
            fault.wait(int(wait), timeout_s=_wait(timeout_s))
        return _fault(fault)

    def remove_fault(self, name: str) -> dict[str, Any]:
        """Remove a rule."""
        fault = self._fault_of(name)
        fault.remove()
        return _fault(fault)

    def _fault_of(self, name: str) -> Any:
        for one in self._book().faults:
            if one.name == name:
                return one
        raise LookupError(f'there is no fault "{name}"')

    # ---- recording, time

    def requests(self, api: str | None = None, count: str | None = None, timeout_s: str = "10") -> list[dict[str, Any]]:
        """Return the recorded requests of clients; with a `count`, as soon as there are that many."""
        recording = self._shared("recording", "observers")
        found = recording.requests(api, count=None if count is None else int(count), timeout_s=_wait(timeout_s))
        return [one.to_json() for one in found]

    def forget_requests(self) -> dict[str, Any]:
        """Drop the recorded requests."""
        self._shared("recording", "observers").clear()
        return {}

    def advance(self, advance_ms: float) -> dict[str, Any]:
        """Move the server's time forward."""
        advance = getattr(self._services.clock, "advance_ms", None)
        if advance is None:
            raise LookupError("the time of this server is the machine's; start it with --ephemeral")
        advance(advance_ms)
        self._services.scheduler.wake()
        return {"wall_ms": self._services.clock.wall_ms()}

    def reset(self) -> dict[str, Any]:
        """Delete all topics, empty groups, rules of faults and recorded requests."""
        self._admin.delete_topics(*self._admin.topics())
        idle = [name for name, state in self._admin.groups().items() if state in ("Empty", "Dead")]
        self._admin.delete_groups(*idle)
        for name in ("faults", "recording"):
            try:
                self._shared(name, "").clear()
            except LookupError:
                continue
        return {}

    def _shared(self, name: str, key: str) -> Any:
        def missing() -> Any:
            raise LookupError(f'no listener has the part "{name}" in {key}')

        return self._services.shared.once(f"klamm.{name}", missing)


def _connect_to(address: tuple[str, int]) -> RawClient:
    return RawClient(address, client_id=HELPER_CLIENT_ID)


def _fault(fault: Any) -> dict[str, Any]:
    return {"name": fault.name, "kind": fault.kind.value, "fired": fault.fired}


def _wait(timeout_s: str) -> float:
    return min(float(timeout_s), _MAX_WAIT_S)


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "replace")
