"""Tests of features: how ApiVersions reports them, and how UpdateFeatures changes them."""

import pytest

from klamm import ErrorCode
from klamm.requests.api_versions import with_api_versions
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages import api_versions
from klamm.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from klamm.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.unit.broker.broker_harness import Reply

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def reported(harness, version=4):
    broker = harness.broker
    (handler,) = [each for each in with_api_versions([], broker.features()) if each.api_key == api_versions.API_KEY]
    request = ApiVersionsRequest("tests", "1")
    context = harness.context(Reply(api_versions, request, version), api_versions.API_KEY, version)
    return ApiVersionsResponse.decode(version, handler.handle(request, context).encode(version))


def levels(response):
    return {each.name: each.max_version_level for each in response.finalized_features}


def update(harness, name, level, kind=UPGRADE, version=2, **fields):
    request = UpdateFeaturesRequest(1000, [FeatureUpdateKey(name, level, upgrade_type=kind)], **fields)
    return harness.call(request, version)


def test_a_new_cluster_has_the_latest_levels(harness):
    response = reported(harness)
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    assert supported["transaction.version"] == (0, 2)
    assert levels(response)["transaction.version"] == 2
    assert all(each.min_version_level == each.max_version_level for each in response.finalized_features)
    assert response.finalized_features_epoch == 0


def test_old_clients_get_no_feature_that_begins_with_level_0(harness):
    response = reported(harness, version=3)
    assert [each.name for each in response.supported_features] == ["metadata.version"]
    assert levels(response)["transaction.version"] == 2
    assert reported(harness, version=0).supported_features == []


def test_a_change_is_reported_at_once_and_kept(harness):
    assert update(harness, "transaction.version", 1, SAFE_DOWNGRADE).error_code == 0
    assert levels(reported(harness))["transaction.version"] == 1
    harness.reopen()
    assert levels(reported(harness))["transaction.version"] == 1
    assert reported(harness).finalized_features_epoch == 1


def test_level_0_is_not_finalized(harness):
    assert update(harness, "transaction.version", 0, UNSAFE_DOWNGRADE).error_code == 0
    assert "transaction.version" not in levels(reported(harness))
    assert harness.broker.registered_features.level("transaction.version") == 0


@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        ("transaction.version", 3, UPGRADE),
        ("transaction.version", -1, UPGRADE),
        ("transaction.version", 1, UPGRADE),
        ("transaction.version", 1, 0),
        ("transaction.version", 1, 4),
        ("metadata.version", 7, SAFE_DOWNGRADE),
        ("no.such.feature", 1, UPGRADE),
    ],
)
def test_a_refused_update_changes_nothing(harness, name, level, kind):
    request = UpdateFeaturesRequest(
        1000,
        [
            FeatureUpdateKey("transaction.version", 0, upgrade_type=SAFE_DOWNGRADE),
            FeatureUpdateKey(name, level, upgrade_type=kind),
        ][-2 if name != "transaction.version" else -1 :],
    )
    response = harness.call(request, 1)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert name in response.error_message
    assert response.results == []
    assert levels(reported(harness))["transaction.version"] == 2


def test_a_downgrade_does_not_raise_a_level(harness):
    update(harness, "transaction.version", 0, SAFE_DOWNGRADE)
    assert update(harness, "transaction.version", 2, SAFE_DOWNGRADE).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert update(harness, "transaction.version", 2, UPGRADE).error_code == 0


def test_a_validating_update_changes_nothing(harness):
    response = update(harness, "transaction.version", 1, SAFE_DOWNGRADE, validate_only=True)
    assert response.error_code == 0
    assert levels(reported(harness))["transaction.version"] == 2


def test_old_versions_get_a_result_for_each_feature(harness):
    response = update(harness, "transaction.version", 2, version=1)
    assert [(each.feature, each.error_code) for each in response.results] == [("transaction.version", 0)]
    assert update(harness, "transaction.version", 2, version=2).results == []


def test_an_upgrade_to_the_release_names_features_without_effect(harness):
    # `kafka-features upgrade --release-version 4.4` sends this request.
    wanted = {
        "metadata.version": 33,
        "kraft.version": 1,
        "transaction.version": 2,
        "group.version": 1,
        "eligible.leader.replicas.version": 1,
        "share.version": 2,
        "streams.version": 1,
    }
    request = UpdateFeaturesRequest(1000, [FeatureUpdateKey(name, level) for name, level in wanted.items()])
    assert harness.call(request, 2).error_code == 0
    assert levels(reported(harness)) == wanted
    assert update(harness, "kraft.version", 0, UNSAFE_DOWNGRADE).error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_old_clients_get_no_such_feature_through_a_filter_either():
    with EmbeddedServer(faults=True) as server, RawClient(server.address()) as client:
        old, new = (client.call(ApiVersionsRequest("test", "1"), version).supported_features for version in (3, 4))
    assert all(each.min_version for each in old)
    assert min(each.min_version for each in new) == 0
