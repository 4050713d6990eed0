"""Tests of request headers: each version is read back, and the position is the beginning of the body."""

import pytest

from klamm.wire.api_keys import ApiKey
from klamm.wire.headers import (
    decode_request_header,
    encode_request_header,
    request_header_version,
    response_header_size,
)
from klamm.wire.primitives import WireError


@pytest.mark.parametrize("client_id", [None, "", "a client", "ä"])
@pytest.mark.parametrize(
    ("api_key", "version", "header_version"),
    [
        (ApiKey.CONTROLLED_SHUTDOWN, 0, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 1, 1),
        (ApiKey.HEARTBEAT, 3, 1),
        (ApiKey.HEARTBEAT, 4, 2),
        (9999, 4, 1),
        (-1, 4, 1),
    ],
)
def test_a_header_is_read_back(api_key, version, header_version, client_id):
    head = encode_request_header(api_key, version, 77, client_id)
    known = None if header_version == 0 else client_id
    assert decode_request_header(head + b"body") == (api_key, version, 77, known, len(head))
    assert request_header_version(api_key, version) == header_version


def test_a_client_id_may_be_as_long_as_its_frame():
    head = encode_request_header(ApiKey.HEARTBEAT, 0, 1, "client")
    assert decode_request_header(head)[4] == len(head)
    with pytest.raises(WireError, match="client id of 6 bytes, 5 are left"):
        decode_request_header(head[:-1])


def test_tagged_fields_of_a_header_are_skipped_up_to_a_limit():
    head = encode_request_header(ApiKey.HEARTBEAT, 4, 1, "client")[:-1]
    for count in (1, 64):
        fields = bytes([count]) + b"".join(bytes([tag, 2]) + b"xy" for tag in range(count))
        assert decode_request_header(head + fields + b"body")[4] == len(head + fields)
    with pytest.raises(WireError, match="more than 64 tagged fields"):
        decode_request_header(head + bytes([65]) + bytes(200))


def test_a_response_header_has_tagged_fields_like_its_request_except_api_versions():
    assert [response_header_size(ApiKey.HEARTBEAT, version) for version in (3, 4)] == [4, 5]
    assert [response_header_size(ApiKey.API_VERSIONS, version) for version in (0, 3)] == [4, 4]
