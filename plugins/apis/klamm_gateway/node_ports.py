"""`NodePorts`: each node of the cluster at a port of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MAX_PORTS: Final = 1000


def parse_ports(text: str) -> range:
    """The ports of `FIRST-LAST`, or of `PORT`. Raises ValueError."""
    first, dash, last = text.partition("-")
    if not first.isdigit() or not (last.isdigit() or not dash):
        raise ValueError(f'must be FIRST-LAST, e.g. 9093-9192, not "{text}"')
    ports = range(int(first), int(last or first) + 1)
    if not ports or ports.start < 1 or ports.stop > 65536:
        raise ValueError(f'"{text}" is no range of ports')
    if len(ports) > _MAX_PORTS:
        raise ValueError(f"are {len(ports)} ports; {_MAX_PORTS} are allowed")
    return ports


@dataclass(frozen=True, slots=True)
class NodePorts:
    """Node `first_node_id` is at the first port, and so on."""

    ports: range
    first_node_id: int

    def port_of(self, node_id: int) -> int | None:
        """The port of a node; None for a node outside the range."""
        index = node_id - self.first_node_id
        return self.ports[index] if 0 <= index < len(self.ports) else None

    def node_at(self, port: int) -> int | None:
        """The node at a port; None for a port outside the range, which stands for any node."""
        return port - self.ports.start + self.first_node_id if port in self.ports else None
