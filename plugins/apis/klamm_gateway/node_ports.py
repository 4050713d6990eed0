"""The addresses of the cluster's nodes for clients: each node has its own port, or its own host name.

The settings create them. The functions only compute, so any thread may call them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Protocol

from klamm import Address, ConnectionContext

_MAX_PORTS: Final = 1000


def parse_ports(text: str) -> range:
    """Return the ports that the text `FIRST-LAST` or `PORT` names. Raises ValueError."""
    first, dash, last = text.partition("-")
    if not first.isdecimal() or not (last.isdecimal() or not dash):
        raise ValueError(f'must be FIRST-LAST, e.g. 9093-9192, not "{text}"')
    ports = range(int(first), int(last or first) + 1)
    if not ports or ports.start < 1 or ports.stop > 65536:
        raise ValueError(f'"{text}" is not a range of ports')
    if len(ports) > _MAX_PORTS:
        raise ValueError(f"are {len(ports)} ports; at most {_MAX_PORTS} are allowed")
    return ports


class NodePlaces(Protocol):
    """The rule that gives each node an address for clients, and that finds the node that a connection is for."""

    def address_of(self, node_id: int, advertised: Address) -> Address | None:
        """Return the address of a node for clients of a listener with this advertised address; None if they cannot
        reach the node.
        """

    def node_of(self, connection: ConnectionContext) -> int | None:
        """Return the node that a client wants; None means any node."""


@dataclass(frozen=True, slots=True)
class NodePorts:
    """A port for each node. Node `first_node_id` has the first port, the next node id the next port."""

    ports: range
    first_node_id: int

    def port_of(self, node_id: int) -> int | None:
        """Return the port of a node; None for a node outside the range."""
        index = node_id - self.first_node_id
        return self.ports[index] if 0 <= index < len(self.ports) else None

    def node_at(self, port: int) -> int | None:
        """Return the node at a port; None for a port outside the range, which means any node."""
        return port - self.ports.start + self.first_node_id if port in self.ports else None

    def address_of(self, node_id: int, advertised: Address) -> Address | None:
        """Return the listener's host, and the node's port."""
        port = self.port_of(node_id)
        return None if port is None else Address(advertised.host, port)

    def node_of(self, connection: ConnectionContext) -> int | None:
        """Return the node by the port that the client has connected to."""
        return self.node_at(connection.local_address.port)


def check_pattern(pattern: str) -> str | None:
    """Return the problem of a pattern for `NodeHosts`; None if the pattern is valid."""
    rest = pattern.replace("{node}", "", 1).replace("{host}", "")
    if pattern.count("{node}") != 1 or "{" in rest or "}" in rest:
        return f'must have {{node}} once, and may have {{host}}, e.g. "broker-{{node}}.{{host}}", not "{pattern}"'
    return None


@dataclass(frozen=True, slots=True)
class NodeHosts:
    """A host name for each node, from a pattern with `{node}`; `{host}` is the listener's host. The port is the
    listener's.
    """

    pattern: str
    _by_host: dict[str, re.Pattern[str]] = field(default_factory=dict)

    def address_of(self, node_id: int, advertised: Address) -> Address | None:
        """Return the node's name, and the listener's port."""
        name = self.pattern.replace("{node}", str(node_id)).replace("{host}", advertised.host)
        return Address(name, advertised.port)

    def node_of(self, connection: ConnectionContext) -> int | None:
        """Return the node by the host name in the client's TLS handshake (SNI)."""
        name = connection.transport_details.get("tls_server_name", "")
        found = self._names_of(connection.listener.advertised.host).fullmatch(name)
        return None if found is None else int(found[1])

    def _names_of(self, host: str) -> re.Pattern[str]:
        names = self._by_host.get(host)
        if names is None:
            before, _, after = self.pattern.replace("{host}", host).partition("{node}")
            text = f"{re.escape(before)}([0-9]{{1,9}}){re.escape(after)}"
            names = self._by_host[host] = re.compile(text, re.IGNORECASE)
        return names
