"""A server that offers what a release of Apache Kafka offers."""

import pytest

from klamm import ErrorCode
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.releases import RELEASES


@pytest.mark.parametrize("release", RELEASES)
def test_no_more_than_the_release_has(release):
    with EmbeddedServer([f'server.as_version="{release}"']) as server, RawClient(server.address()) as client:
        offered = {each.api_key: each for each in client.call(ApiVersionsRequest(), 0).api_keys}
        assert offered.keys() <= RELEASES[release].keys()
        assert all(each.max_version <= RELEASES[release][key][1] for key, each in offered.items())
        assert offered.keys() >= {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS}


def test_later_versions_are_refused_as_that_release_refuses_them():
    with EmbeddedServer(['server.as_version="2.8"']) as server, RawClient(server.address()) as client:
        assert client.call(ApiVersionsRequest("a", "1"), 3).error_code == ErrorCode.NONE
        client.send(ApiVersionsRequest("a", "1"), 4)
        assert client.receive_frame()[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
