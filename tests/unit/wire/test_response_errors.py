"""Tests that error codes are found wherever a response may have them."""

import dataclasses

import pytest

from klamm.wire.api_keys import ApiKey, load
from klamm.wire.messages import (
    add_partitions_to_txn,
    api_versions,
    create_topics,
    fetch,
    metadata,
    offset_fetch,
    produce,
)
from klamm.wire.response_errors import first_error, has_errors_inside, named_errors


def no_names(topic_id):
    return topic_id.hex()


def test_the_responses_own_error_comes_first():
    partition = fetch.PartitionData(0, error_code=3)
    response = fetch.FetchResponse(responses=[fetch.FetchableTopicResponse("t", partitions=[partition])])
    assert first_error(response) == 3
    response.error_code = 70
    assert first_error(response) == 70


@pytest.mark.parametrize(
    ("response", "code", "named"),
    [
        (api_versions.ApiVersionsResponse(error_code=35), 35, {}),
        (metadata.MetadataResponse(), 0, {}),
        # The topic was created, but its configs are hidden.
        (
            create_topics.CreateTopicsResponse(
                topics=[create_topics.CreatableTopicResult("a", topic_config_error_code=29)]
            ),
            0,
            {},
        ),
        (
            metadata.MetadataResponse(
                topics=[metadata.MetadataResponseTopic(0, "a"), metadata.MetadataResponseTopic(5, "b")]
            ),
            5,
            {"b": 5},
        ),
        (
            produce.ProduceResponse(
                [
                    produce.TopicProduceResponse("", b"\1" * 16, [produce.PartitionProduceResponse(0, 6)]),
                    produce.TopicProduceResponse("a", partition_responses=[produce.PartitionProduceResponse(0, 10)]),
                ]
            ),
            6,
            {"01" * 16: 6, "a": 10},
        ),
        (
            offset_fetch.OffsetFetchResponse(groups=[offset_fetch.OffsetFetchResponseGroup("g", error_code=30)]),
            30,
            {"g": 30},
        ),
        (
            add_partitions_to_txn.AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                        "t", [add_partitions_to_txn.AddPartitionsToTxnPartitionResult(0, 55)]
                    )
                ]
            ),
            55,
            {"t": 55},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_are_found_at_every_place(response, code, named):
    assert first_error(response) == code
    assert named_errors(response, no_names) == named


@dataclasses.dataclass
class Prepared:
    error_code: int = 7


@pytest.mark.parametrize(("response", "code"), [(None, 0), (42, 0), (b"", 0), (Prepared(), 7)])
def test_objects_that_are_not_messages_have_at_most_their_own_error(response, code):
    assert first_error(response) == code


def test_subclasses_of_messages_are_read_as_those():
    class Kept(api_versions.ApiVersionsResponse):
        __slots__ = ("encoded",)

        def __init__(self):
            super().__init__(error_code=35)

    assert first_error(Kept()) == 35


@pytest.mark.parametrize("api_key", list(ApiKey), ids=lambda key: key.name)
def test_errors_can_be_found_in_every_response(api_key):
    try:
        module = load(api_key)
    except (KeyError, ImportError):
        pytest.skip("has no message module")
    response = vars(module)[f"{module.NAME}Response"]
    assert first_error(response()) == 0
    assert named_errors(response(), no_names) == {}


def test_classes_with_errors_inside_are_known_statically():
    assert has_errors_inside(produce.ProduceResponse)
    assert not has_errors_inside(api_versions.ApiVersionsResponse)
    assert not has_errors_inside(int)
