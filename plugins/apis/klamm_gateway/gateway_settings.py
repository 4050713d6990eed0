"""Settings of the handler set `gateway`. A setting's `doc` becomes a line of the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm import setting
from klamm.config import parse_host_port
from klamm_gateway.node_ports import NodeHosts, NodePlaces, NodePorts, check_pattern, parse_ports

_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def _check_bootstrap(addresses: tuple[str, ...]) -> str | None:
    if not addresses:
        return "must name at least one node"
    for address in addresses:
        try:
            parse_host_port(address, to_connect=True)
        except ValueError as error:
            return str(error)
    return None


def _check_ports(text: str) -> str | None:
    if not text:
        return None
    try:
        parse_ports(text)
    except ValueError as error:
        return str(error)
    return None


def _check_function(text: str) -> str | None:
    module, colon, function = text.partition(":")
    return None if not text or (colon and module and function) else f'must be "module:function", not "{text}"'


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The keys of `[gateway]`. They never change."""

    bootstrap: tuple[str, ...] = setting(
        doc="HOST:PORT of some nodes of the cluster, from which the gateway gets the others.",
        kafka="bootstrap.servers",
        check=_check_bootstrap,
    )
    nodes: str = setting(
        "ports",
        doc="Addresses of the nodes for clients: `ports` gives each node its own port, `sni` its own host name on "
        "the listener's port, which needs TLS.",
        choices=("ports", "sni"),
    )
    node_ports: str = setting(
        "",
        doc="With `ports`: ports for the nodes of the cluster, FIRST-LAST. Node `first_node_id` has the first port, "
        "the "
        "next node id the next one. Each listener of this handler set binds all of them in addition to its own port.",
        check=_check_ports,
    )
    node_hosts: str = setting(
        "broker-{node}.{host}",
        doc="With `sni`: the host name of node `{node}`; `{host}` is the host of the listener's `advertise`.",
        check=check_pattern,
    )
    unknown_apis: str = setting(
        "refuse",
        doc="APIs and versions that klamm does not know: `refuse` does not offer them. `pass` passes them on "
        "unchanged, but only on listeners without filters, observers and authorizer, which could not inspect them. "
        "Their "
        "responses may name nodes and so lead clients past the gateway.",
        choices=("refuse", "pass"),
    )
    first_node_id: int = setting(0, doc="The node id at the first of `node_ports`.", minimum=0)
    metadata_max_age_ms: int = setting(
        60_000,
        doc="Time between two requests for the nodes and their API versions. The gateway also asks when a "
        "connection fails.",
        kafka="metadata.max.age.ms",
        minimum=100,
    )
    socket_connection_setup_timeout_ms: int = setting(
        10_000,
        doc="Longest time that a connection to a node may take to connect and log in.",
        kafka="socket.connection.setup.timeout.ms",
        minimum=1,
    )
    acls_max_age_ms: int = setting(
        10_000,
        doc='With `acl.rules = "cluster"`: time for which the cluster\'s answer is valid. The gateway asks twice '
        "as often. If the rules are older, or the cluster refuses to return them, nothing is allowed.",
        minimum=100,
    )
    security_protocol: str = setting(
        "PLAINTEXT",
        name="upstream.security_protocol",
        doc="Security protocol of the gateway's connections to the nodes.",
        kafka="security.protocol",
        choices=_PROTOCOLS,
    )
    login: str = setting(
        "gateway",
        name="upstream.login",
        doc="Login to the nodes on behalf of a client: `gateway` uses the account below, `principal` an account of the "
        "client's principal. With `client`, the client logs in itself: its SASL requests are passed on.",
        choices=("gateway", "principal", "client"),
    )
    accounts_file: Path | None = setting(
        None,
        name="upstream.accounts_file",
        doc='With `login = "principal"`: TOML file with a table for each principal, `["User:alice"]`, with `username` '
        "and `password`. Read at the start and at SIGHUP.",
        private=True,
    )
    accounts_function: str = setting(
        "",
        name="upstream.accounts_function",
        doc='With `login = "principal"`: "module:function"; function(principal) returns user name and password, or '
        "None. It must not wait.",
        check=_check_function,
    )
    sasl_mechanism: str = setting(
        "SCRAM-SHA-512",
        name="upstream.sasl_mechanism",
        doc="Mechanism by which the gateway logs in.",
        kafka="sasl.mechanism",
        choices=_MECHANISMS,
    )
    sasl_username: str = setting(
        "",
        name="upstream.sasl_username",
        doc="Account with which the gateway logs in. The gateway always requests the list of nodes with it, "
        "whatever `login` is.",
        kafka="sasl.jaas.config",
    )
    sasl_password_file: Path | None = setting(
        None,
        name="upstream.sasl_password_file",
        doc="File whose first line is the password of that account. Read at the start and at SIGHUP.",
        kafka="sasl.jaas.config",
        private=True,
    )
    ssl_truststore_location: Path | None = setting(
        None,
        name="upstream.ssl_truststore_location",
        doc="PEM file with the authorities that issue the nodes' certificates; unset, the system's.",
        kafka="ssl.truststore.location",
    )
    ssl_keystore_location: Path | None = setting(
        None,
        name="upstream.ssl_keystore_location",
        doc="PEM file with the gateway's own certificate, its chain and its key.",
        kafka="ssl.keystore.location",
        private=True,
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        name="upstream.ssl_endpoint_identification_algorithm",
        doc="`https` checks that a node's certificate names its host; an empty string disables the check.",
        kafka="ssl.endpoint.identification.algorithm",
        choices=("https", ""),
    )

    @property
    def ports(self) -> NodePorts:
        """Return the port of each node."""
        return NodePorts(parse_ports(self.node_ports), self.first_node_id)

    @property
    def places(self) -> NodePlaces:
        """Return the addresses of the nodes for clients."""
        return self.ports if self.nodes == "ports" else NodeHosts(self.node_hosts)

    @property
    def more_ports(self) -> Sequence[int]:
        """The ports that listeners bind for the nodes."""
        return parse_ports(self.node_ports) if self.nodes == "ports" else ()

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield problems of the settings."""
        if self.nodes == "ports" and not self.node_ports:
            yield "node_ports", 'is needed for nodes = "ports"'
        if self.login != "gateway" and not self.security_protocol.startswith("SASL"):
            yield "upstream.login", f'"{self.login}" needs security_protocol = "SASL_SSL" or "SASL_PLAINTEXT"'
        if self.login == "principal" and (self.accounts_file is None) == (not self.accounts_function):
            yield "upstream.login", '"principal" needs either accounts_file or accounts_function'
        if self.security_protocol.startswith("SASL"):
            if not self.sasl_username:
                yield "upstream.sasl_username", f"is needed for {self.security_protocol}"
            if self.sasl_password_file is None:
                yield "upstream.sasl_password_file", f"is needed for {self.security_protocol}"
        from klamm_gateway.upstream.files import FILES, problem_with

        for key in FILES:
            path: Path | None = getattr(self, key)
            problem = None if path is None else problem_with(key, path)
            if problem is not None:
                yield f"upstream.{key}", problem
