"""APIs and versions that klamm does not know: a gateway forwards them unless one of its parts must read them."""

import pytest

from klamm.testing import RawClient
from klamm.wire.api_keys import ApiKey, spec_of
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tests.contract.gateway_nodes import FakeNode, gateway

NEW_API = max(ApiKey) + 1
NEWER = spec_of(ApiKey.HEARTBEAT).max_version + 3
BODY = b"\0what klamm cannot read"
SEEN = [
    ['listeners.default.observers=["recording"]'],
    ["listeners.default.authorizer=static", "listeners.default.static.rules=[]"],
    ['listeners.default.filters=["faults"]'],
]


def offering(api_keys):
    """Return a node that offers more APIs than klamm knows.

    Its responses have their own bytes after the correlation id.
    """

    def serve(node, sock, frame):
        answer = bytes(frame[4:8]) + BODY
        sock.sendall(len(answer).to_bytes(4, "big") + answer)

    node = FakeNode(serve)
    node.versions = ApiVersionsResponse(api_keys=[ApiVersion(key, 0, version) for key, version in api_keys.items()])
    return node


def offered(client):
    return {one.api_key: one.max_version for one in client.call(ApiVersionsRequest("t", "1"), 3).api_keys}


KNOWN_THERE = {NEW_API: 4, int(ApiKey.HEARTBEAT): NEWER, int(ApiKey.METADATA): 99, int(ApiKey.FETCH): 99}


@pytest.mark.parametrize("api_key", [NEW_API, int(ApiKey.HEARTBEAT)])
def test_unknown_apis_pass_unchanged(api_key):
    version = KNOWN_THERE[api_key]
    with (
        offering(KNOWN_THERE) as node,
        gateway(node.bootstrap, ["gateway.unknown_apis=pass"]) as front,
        RawClient(front.address()) as client,
    ):
        found = offered(client)
        assert found[api_key] == version
        assert found[ApiKey.METADATA] == spec_of(ApiKey.METADATA).max_version, "it names nodes"
        assert found[ApiKey.FETCH] == 15
        frame = encode_request_header(api_key, version, 77, "new") + BODY
        client.send_frame(frame)
        answer = client.receive_frame()
        assert (answer[:4], answer[4:]) == ((77).to_bytes(4, "big"), BODY)
        assert bytes(node.frames[0]) == frame


@pytest.mark.parametrize("settings", [[], *[["gateway.unknown_apis=pass", *more] for more in SEEN]])
def test_unknown_apis_are_refused_if_a_part_would_have_to_inspect_them(settings):
    with offering(KNOWN_THERE) as node, gateway(node.bootstrap, settings) as front:
        with RawClient(front.address()) as client:
            found = offered(client)
            assert NEW_API not in found
            assert found[ApiKey.HEARTBEAT] == spec_of(ApiKey.HEARTBEAT).max_version
        for api_key in (NEW_API, ApiKey.HEARTBEAT):
            with RawClient(front.address()) as client:
                client.send_frame(encode_request_header(api_key, KNOWN_THERE[api_key], 77, "new") + BODY)
                assert client.at_end()
        assert not node.frames
