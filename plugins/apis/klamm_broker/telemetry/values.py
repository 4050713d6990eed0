"""`PushedValues`: the values that clients have pushed, within limits for each client and for all."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from sys import getsizeof
from typing import Final

from klamm_broker.telemetry.otlp import MetricPoint

MAX_POINTS: Final = 1_000
"""Maximum number of values that are stored for one client. Further values are dropped."""
MAX_CLIENT_BYTES: Final = 512 * 1024
"""Maximum size in bytes of the values of one client. Further values are dropped."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum size in bytes of the values of all clients. Above it, the clients that have been silent the longest lose
their values.
"""
_POINT_BYTES: Final = 300
"""Approximate size of a value without its texts."""

Key = tuple[str, tuple[tuple[str, str], ...]]
"""A metric's name and attributes."""


class ClientValues:
    """The last value of each metric of one client, or the sum of its increments."""

    __slots__ = ("by_key", "client_id", "size_bytes")

    def __init__(self) -> None:
        self.client_id = ""
        self.by_key: dict[Key, float] = {}
        self.size_bytes = 0

    def take(self, point: MetricPoint) -> None:
        """Store a value that was pushed."""
        key = point.name, point.attributes
        before = self.by_key.get(key)
        if before is None:
            size_bytes = _POINT_BYTES + _text_bytes(key)
            if len(self.by_key) >= MAX_POINTS or self.size_bytes + size_bytes > MAX_CLIENT_BYTES:
                return
            self.size_bytes += size_bytes
        self.by_key[key] = point.value + (before or 0.0 if point.is_delta else 0.0)


class PushedValues:
    """The values of all clients, by client id; the clients that pushed last are at the end.

    Only `ClientTelemetry` uses it, under its own lock.
    """

    def __init__(self) -> None:
        self._clients: OrderedDict[bytes, ClientValues] = OrderedDict()
        self.size_bytes = 0

    def take(self, instance_id: bytes, client_id: str, points: Iterable[MetricPoint]) -> None:
        """Keep the values of one push."""
        client = self._clients.get(instance_id)
        if client is None:
            client = self._clients[instance_id] = ClientValues()
        self._clients.move_to_end(instance_id)
        client.client_id = client_id
        before = client.size_bytes
        for point in points:
            client.take(point)
        self.size_bytes += client.size_bytes - before
        while self.size_bytes > MAX_BYTES:
            self.size_bytes -= self._clients.popitem(last=False)[1].size_bytes

    def forget(self, instance_id: bytes) -> None:
        """Drop the values of a client if there are any."""
        client = self._clients.pop(instance_id, None)
        if client is not None:
            self.size_bytes -= client.size_bytes

    def latest(self, count: int) -> list[tuple[bytes, str, dict[Key, float]]]:
        """Return id, client id and values of the clients that pushed last."""
        latest = list(self._clients.items())[-count:]
        return [(instance_id, client.client_id, dict(client.by_key)) for instance_id, client in latest]


def _text_bytes(key: Key) -> int:
    name, attributes = key
    return sum(getsizeof(text) for text in (name, *(text for pair in attributes for text in pair)))
