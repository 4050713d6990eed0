"""The findings of `klamm doctor` about a gateway: the nodes that answer, their addresses for clients, and remedies.

The command calls `examine` on its main thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from klamm import ListenerContext
from klamm.config import Finding, parse_host_port
from klamm.wire.messages import api_versions, metadata
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.metadata import MetadataRequest, MetadataResponseBroker
from klamm_gateway.gateway_settings import GatewaySettings
from klamm_gateway.upstream.conversation import Conversation
from klamm_gateway.upstream.questions import SOFTWARE
from klamm_gateway.upstream.security import Security, load_security, resolve
from klamm_gateway.upstream.states import UpstreamError

_API_VERSIONS: Final = 3
_METADATA: Final = 4
_AT_ONCE: Final = 16
_REMEDIES: Final = {
    "unknown_host": "add the name to the DNS that this machine uses, or to its /etc/hosts",
    "connection_failed": "start the node, open the firewalls on the way, or correct its address",
    "tls_failed": "compare upstream.ssl_truststore_location with the CA of the node's certificate, the host with the "
    "names in it, and upstream.security_protocol with the node's listener",
    "authentication_failed": "compare upstream.sasl_mechanism, sasl_username and the password with the node's accounts",
    "closed_by_node": "compare upstream.security_protocol with the node's listener; the node's log has the reason",
    "connection_lost": "compare upstream.security_protocol with the node's listener; the node's log has the reason",
    "invalid_response": "check that this is the Kafka listener of a node, and upstream.security_protocol",
    "timeout": "check that this is the Kafka listener of a node, upstream.security_protocol, and the network between",
}


class Answer(NamedTuple):
    """A node's answer: its brokers and the number of its APIs, or the reason why there is no answer."""

    brokers: Sequence[MetadataResponseBroker] = ()
    api_count: int = 0
    error: UpstreamError | None = None


def examine(
    settings: GatewaySettings, listeners: Sequence[ListenerContext], random_bytes: Callable[[int], bytes]
) -> Iterator[Finding]:
    """Yield the findings. All nodes are asked concurrently, each for at most `socket_connection_setup_timeout_ms`."""
    try:
        security = load_security(settings, random_bytes)
    except (OSError, ValueError) as error:
        yield Finding("upstream", f"certificates or password cannot be read: {error}", "correct the file")
        return
    brokers: dict[int, MetadataResponseBroker] = {}
    for address, answer in _ask(
        settings, security, [parse_host_port(each, to_connect=True) for each in settings.bootstrap]
    ):
        yield _finding(f"bootstrap {_text(address)}", answer, settings)
        brokers = brokers or {each.node_id: each for each in answer.brokers}
    if not brokers:
        yield Finding("nodes", "are not known", "at least one address of bootstrap must answer")
        return
    addresses = [(each.host, each.port) for each in brokers.values()]
    for broker, (address, answer) in zip(brokers.values(), _ask(settings, security, addresses), strict=True):
        yield _finding(f"node {broker.node_id} ({_text(address)})", answer, settings)
    for node_id in sorted(brokers):
        for listener in listeners:
            yield _place_of(settings, node_id, listener)


def _place_of(settings: GatewaySettings, node_id: int, listener: ListenerContext) -> Finding:
    """Return a finding about the address at which clients of a listener reach a node."""
    subject = f"listener {listener.name}, node {node_id}"
    address = settings.places.address_of(node_id, listener.advertised)
    if address is None:
        last_node_id = settings.first_node_id + len(settings.more_ports) - 1
        return Finding(
            subject,
            f"has no port: node_ports {settings.node_ports} serve nodes {settings.first_node_id} to {last_node_id}",
            "set first_node_id to the smallest node id, and make node_ports reach to the largest",
        )
    if settings.nodes == "sni":
        try:
            resolve(*address)
        except (OSError, UnicodeError) as error:
            remedy = "add the names of all nodes to the DNS that clients use, e.g. by a wildcard"
            return Finding(subject, f"clients are sent to {address}, which does not resolve: {_words(error)}", remedy)
    return Finding(subject, f"clients are sent to {address}")


def _finding(subject: str, answer: Answer, settings: GatewaySettings) -> Finding:
    error = answer.error
    if error is not None:
        return Finding(subject, f"{error.reason}: {error}", _REMEDIES.get(error.reason, "see the log of the node"))
    how = settings.security_protocol
    if how.startswith("SASL"):
        how += f" {settings.sasl_mechanism}, logged in as {settings.sasl_username}"
    return Finding(subject, f"answers by {how}; {answer.api_count} APIs")


def _ask(
    settings: GatewaySettings, security: Security, addresses: Sequence[tuple[str, int]]
) -> Iterator[tuple[tuple[str, int], Answer]]:
    """Yield each address with its answer, in order. All addresses are asked at the same time."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        yield from zip(addresses, threads.map(lambda one: _asked(settings, security, *one), addresses), strict=True)


def _words(error: OSError | UnicodeError) -> str:
    """Return the system's text for an error, without the error's number."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _asked(settings: GatewaySettings, security: Security, host: str, port: int) -> Answer:
    timeout_s = settings.socket_connection_setup_timeout_ms / 1000
    try:
        resolve(host, port)
    except (OSError, UnicodeError) as error:
        return Answer(error=UpstreamError("unknown_host", _words(error)))
    try:
        with Conversation(host, port, security, SOFTWARE, timeout_s) as conversation:
            versions: Any = conversation.call(ApiVersionsRequest(SOFTWARE, "1"), _API_VERSIONS, api_versions)
            found: Any = conversation.call(MetadataRequest([]), _METADATA, metadata)
    except TimeoutError:
        return Answer(error=UpstreamError("timeout", "connecting, TLS and login took too long"))
    except OSError as error:
        return Answer(error=UpstreamError("connection_failed", _words(error)))
    except UpstreamError as error:
        return Answer(error=error)
    return Answer(found.brokers, len(versions.api_keys))


def _text(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"
