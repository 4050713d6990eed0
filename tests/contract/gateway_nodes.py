"""A gateway for tests, and nodes behind the gateway whose answers a test scripts (`FakeNode`)."""

import contextlib
import socket
import threading

import klamm_gateway
from klamm.testing import EmbeddedServer
from klamm.wire.headers import decode_request_header, response_header_size
from klamm.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from klamm.wire.messages.metadata import MetadataResponse, MetadataResponseBroker

_TIMEOUT_S = 20


def free_ports(count):
    """Return the first of `count` consecutive ports that are free at this moment."""
    while True:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            start = first.getsockname()[1]
            try:
                for port in range(start + 1, start + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            return start


def gateway(bootstrap, settings=(), *, node_ids=1, first_node_id=1, plugins=(), **options):
    """Return a gateway that is not started. Its node ports are free at this moment."""
    start = free_ports(node_ids)
    own = [
        "listeners.default.api_set=gateway",
        f'gateway.bootstrap=["{bootstrap}"]',
        f"gateway.node_ports={start}-{start + node_ids - 1}",
        f"gateway.first_node_id={first_node_id}",
    ]
    return EmbeddedServer([*own, *settings], plugins=[klamm_gateway, *plugins], **options)


def upstream_connections(server):
    """Return how many connections to nodes a gateway has open."""
    found = server.server.services.metrics.collect(lambda name: name.endswith("name=UpstreamConnections"))
    return sum(sample.value for family in found for sample in family.samples)


class FakeNode:
    """A node that answers ApiVersions and Metadata, and hands every other request to `serve(node, sock, frame)`.

    `brokers` are the node ids and ports that its Metadata names, `topics` the topics. `frames` are the other
    requests, in order; `accepted` counts connections; `versions` is its answer to ApiVersions.
    """

    def __init__(self, serve=None, node_id=1):
        self.node_id = node_id
        self.serve = serve or (lambda node, sock, frame: None)
        self.frames = []
        self.accepted = 0
        self.versions = ApiVersionsResponse(
            api_keys=[ApiVersion(each, 0, 15) for each in range(93) if each not in (17, 36)]
        )
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.brokers = {node_id: self.port}
        self.topics = []
        self._sockets = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def bootstrap(self):
        return f"127.0.0.1:{self.port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        # `close` alone would leave the thread in `accept`.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()
        self._thread.join(_TIMEOUT_S)

    def cut(self):
        """Close every connection."""
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._sockets = []

    def _accept(self):
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            sock.settimeout(_TIMEOUT_S)
            self.accepted += 1
            self._sockets.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = take(sock, int.from_bytes(take(sock, 4), "big"))
                key, version, correlation_id, _client, _offset = decode_request_header(frame)
                if key == 18:
                    answers = self.versions
                    sock.sendall(response(correlation_id, key, version, answers.encode(version)))
                elif key == 3:
                    brokers = [MetadataResponseBroker(each, "127.0.0.1", port) for each, port in self.brokers.items()]
                    body = MetadataResponse(brokers=brokers, cluster_id="fake", topics=self.topics).encode(version)
                    sock.sendall(response(correlation_id, key, version, body))
                else:
                    self.frames.append(frame)
                    self.serve(self, sock, frame)


def take(sock, count):
    """Receive exactly `count` bytes. Raises EOFError at the end of the stream."""
    data = b""
    while len(data) < count:
        piece = sock.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return data


def response(correlation_id, api_key, version, body):
    """Return a response frame as a node sends it, with its size."""
    header = correlation_id.to_bytes(4, "big", signed=True)
    payload = header + bytes(response_header_size(api_key, version) - 4) + body
    return len(payload).to_bytes(4, "big") + payload


def answer_with(body):
    """Return a function for `FakeNode.serve` that answers every request with the same body."""

    def serve(node, sock, frame):
        key, version, correlation_id, _client, _offset = decode_request_header(frame)
        sock.sendall(response(correlation_id, key, version, body))

    return serve
