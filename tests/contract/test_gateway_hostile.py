"""Tests of malformed bytes from clients and nodes of a gateway: they cause an error, or close the connection.

Other clients and nodes notice nothing. Clients send the hostile bytes of `tests.faults.test_hostile`. Nodes send
malformed responses of every API. An observer wants all events, so the gateway decodes the responses.
"""

import logging
import random
import struct

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import load
from klamm.wire.headers import decode_request_header, encode_request_header
from klamm.wire.messages.metadata import MetadataRequest
from klamm_gateway.forwarded_apis import forwarded_apis
from tests.contract.gateway_nodes import FakeNode, gateway, response, upstream_connections
from tests.faults.test_hostile import BAD_BYTES

APIS = [(spec, version) for spec, versions in forwarded_apis() for version in {versions.start, versions.stop - 1}]
NO_HEADER = -1


@pytest.fixture(params=[False, True], ids=["opaque", "decoded"])
def front(request):
    """Yield a gateway before a node that answers only ApiVersions and Metadata."""
    with FakeNode() as node, gateway(node.bootstrap, recording=request.param) as server:
        yield server


def is_served(server):
    with RawClient(server.address()) as client:
        return client.call(MetadataRequest([]), 9).cluster_id == "fake"


@pytest.mark.parametrize("data", BAD_BYTES.values(), ids=BAD_BYTES)
def test_the_gateway_survives_any_bytes_of_clients(front, data):
    with RawClient(front.address(), timeout_s=0.3) as client:
        client.send_bytes(data)
        try:
            answer = client.receive_frame()
        except (ConnectionError, TimeoutError):
            answer = b""
        assert answer == b"" or len(answer) >= 4
        assert is_served(front)


def answers(module, version, choose):
    """Yield bodies that are not responses of an API, or only a part of a response."""
    valid = vars(module)[f"{module.NAME}Response"]().encode(version)
    yield b""
    yield valid[: len(valid) // 2]
    yield valid[:-1]
    yield b"\xff" * 64
    yield b"\x7f" * 64
    yield struct.pack(">i", (1 << 31) - 1) * 8
    yield choose.randbytes(choose.randrange(1, 200))
    if valid:
        broken = bytearray(valid)
        broken[choose.randrange(len(broken))] ^= 1 << choose.randrange(8)
        yield bytes(broken)


def request_of(module, version):
    """Return a request of an API that requires a response."""
    message = vars(module)[f"{module.NAME}Request"]()
    if hasattr(message, "acks"):
        message.acks = 1
    return encode_request_header(module.API_KEY, version, 7, "c") + message.encode(version)


@pytest.mark.parametrize("recording", [False, True], ids=["opaque", "decoded"])
def test_the_gateway_survives_any_responses_of_nodes(recording, seed, caplog):
    """Each malformed response either closes the client's connection, or the client gets it.

    The next client is served.
    """
    choose = random.Random(seed)
    bodies = []

    def serve(node, sock, frame):
        key, version, correlation_id, _client, _offset = decode_request_header(frame)
        sock.sendall(response(correlation_id, key, version, bodies[-1]))

    with FakeNode(serve) as node, gateway(node.bootstrap, recording=recording) as server:
        port = server.api_set().settings.ports.ports.start
        for spec, version in APIS:
            if spec.api_key == MetadataRequest.API_KEY:
                # `FakeNode` answers Metadata itself.
                continue
            module = load(spec.api_key)
            for body in answers(module, version, choose):
                bodies.append(body)
                with RawClient(("127.0.0.1", port), timeout_s=60) as client:
                    client.send_frame(request_of(module, version))
                    try:
                        assert client.receive_frame()[:4] == (7).to_bytes(4, "big")
                    except ConnectionError:
                        continue
        assert is_served(server)
        EmbeddedServer.wait_until(lambda: upstream_connections(server) == 0)
    unexpected = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert not unexpected, [one.getMessage() for one in unexpected][:3]


@pytest.mark.parametrize("size", [NO_HEADER, 0, 3, 4, (1 << 31) - 1, -(1 << 31)])
def test_gateway_checks_the_sizes_that_nodes_declare(size):
    """An impossible size closes the client's connection, and the gateway allocates no memory for it."""

    def serve(node, sock, frame):
        correlation_id = decode_request_header(frame)[2]
        sock.sendall(struct.pack(">ii", size, correlation_id) + bytes(64))

    with FakeNode(serve) as node, gateway(node.bootstrap, recording=True) as server:
        with RawClient(server.address()) as client:
            client.send_frame(encode_request_header(12, 4, 7, "c") + b"\2g\0\0\0\0\1\0\0")
            assert client.at_end() or size == 4
        assert is_served(server)
