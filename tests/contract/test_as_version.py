"""Tests of a server with the setting `as_version`: the server offers the APIs and features of that Kafka release."""

import pytest

from klamm import ErrorCode
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from klamm.wire.releases import RELEASES


@pytest.mark.parametrize("release", RELEASES)
def test_the_server_offers_no_api_version_that_the_release_lacks(release):
    with EmbeddedServer([f'server.as_version="{release}"']) as server, RawClient(server.address()) as client:
        offered = {each.api_key: each for each in client.call(ApiVersionsRequest(), 0).api_keys}
        assert offered.keys() <= RELEASES[release].keys()
        assert all(each.max_version <= RELEASES[release][key][1] for key, each in offered.items())
        assert offered.keys() >= {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS}


def test_later_api_versions_are_refused_as_the_release_refuses_them():
    with EmbeddedServer(['server.as_version="2.8"']) as server, RawClient(server.address()) as client:
        assert client.call(ApiVersionsRequest("a", "1"), 3).error_code == ErrorCode.NONE
        client.send(ApiVersionsRequest("a", "1"), 4)
        assert client.receive_frame()[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


@pytest.mark.parametrize(
    ("release", "levels", "not_finalized"),
    [
        ("2.8", {}, {}),
        ("3.9", {"metadata.version": 21}, {}),
        ("4.0", {"metadata.version": 25, "transaction.version": 2, "group.version": 1}, {}),
        (
            "4.3",
            {"metadata.version": 30, "transaction.version": 2, "group.version": 1, "share.version": 1}
            | {"eligible.leader.replicas.version": 1, "streams.version": 1},
            {"kraft.version": 1},
        ),
        (
            "4.4",
            {"metadata.version": 33, "transaction.version": 2, "group.version": 1, "share.version": 2}
            | {"eligible.leader.replicas.version": 1, "streams.version": 1},
            {"kraft.version": 1},
        ),
    ],
)
def test_the_server_offers_the_features_of_the_release(release, levels, not_finalized):
    with EmbeddedServer([f'server.as_version="{release}"']) as server, RawClient(server.address()) as client:
        answer = client.call(ApiVersionsRequest("a", "1"), RELEASES[release][ApiKey.API_VERSIONS][1])
        assert {each.name: each.max_version_level for each in answer.finalized_features} == levels
        assert {each.name: each.max_version for each in answer.supported_features} == levels | not_finalized
        assert (answer.finalized_features_epoch >= 0) == bool(levels)


def test_changed_feature_levels_stay_within_the_release():
    with EmbeddedServer(['server.as_version="4.0"']) as server, RawClient(server.address()) as client:
        update = FeatureUpdateKey("transaction.version", 1, upgrade_type=2)
        client.call(UpdateFeaturesRequest(feature_updates=[update]), 1)
        answer = client.call(ApiVersionsRequest("a", "1"), 4)
        found = {each.name: each.max_version_level for each in answer.finalized_features}
        assert found == {"metadata.version": 25, "transaction.version": 1, "group.version": 1}
