"""Tests of counts of error codes in responses: every field with one, for every API."""

import pytest

from klamm.wire.api_keys import ApiKey, load, spec_of
from klamm.wire.error_counts import error_counter, has_only_own_code
from klamm.wire.messages import api_versions, fetch, heartbeat, metadata, produce
from klamm.wire.response_errors import first_error


def test_the_code_of_the_response_itself_is_counted():
    count = error_counter(heartbeat.HeartbeatResponse)
    assert has_only_own_code(heartbeat.HeartbeatResponse)
    assert count(heartbeat.HeartbeatResponse(error_code=25)) == {25: 1}
    assert count(heartbeat.HeartbeatResponse()) is None


def test_codes_of_partitions_are_counted_one_by_one():
    partitions = [produce.PartitionProduceResponse(index, code) for index, code in enumerate([0, 3, 3, 6])]
    response = produce.ProduceResponse([produce.TopicProduceResponse("a", b"", partitions)])
    assert error_counter(produce.ProduceResponse)(response) == {3: 2, 6: 1}


def test_codes_on_all_levels_are_counted():
    topic = metadata.MetadataResponseTopic(error_code=3, partitions=[metadata.MetadataResponsePartition(error_code=5)])
    response = metadata.MetadataResponse(topics=[topic, metadata.MetadataResponseTopic(error_code=3)])
    assert error_counter(metadata.MetadataResponse)(response) == {3: 2, 5: 1}


def test_a_response_without_topics_has_no_errors():
    assert error_counter(fetch.FetchResponse)(fetch.FetchResponse()) is None
    assert error_counter(api_versions.ApiVersionsResponse)(api_versions.ApiVersionsResponse()) is None


@pytest.mark.parametrize("api_key", list(ApiKey), ids=lambda key: key.name)
def test_the_fast_counter_of_every_api_agrees_with_the_general_one(api_key):
    module = load(int(api_key))
    response_class = vars(module)[f"{spec_of(int(api_key)).name}Response"]
    response = response_class()
    count = error_counter(response_class)
    assert count(response) is None
    if hasattr(response, "error_code"):
        response.error_code = 42
        assert count(response) == {42: 1}
        assert first_error(response) == 42
