"""`check_filter` finds filters that break its rules about records."""

import pytest

from klamm import RequestFilter
from klamm.testing import check_filter
from klamm.wire.api_keys import ApiKey
from klamm.wire.records import decode_records, iterate_batches


class Unpacks(RequestFilter):
    api_keys = (ApiKey.PRODUCE,)
    blocking = True

    def on_request(self, message, context):
        for topic in message.topic_data:
            for partition in topic.partition_data:
                list(decode_records(partition.records or b""))
        return message


class TakesBytesAlone(RequestFilter):
    api_keys = (ApiKey.FETCH,)
    blocking = True

    def on_response(self, response, context):
        for topic in response.responses:
            for partition in topic.partitions:
                list(iterate_batches(partition.records or b""))
        return response


class Forgets(TakesBytesAlone):
    def on_response(self, response, context):
        for topic in response.responses:
            for partition in topic.partitions:
                partition.records = None
        return response


@pytest.mark.parametrize(
    ("part", "rule"),
    [
        (Unpacks, "unpacks_no_bomb"),
        (TakesBytesAlone, "takes_records_of_files"),
        (Forgets, "takes_records_of_files"),
        (RequestFilter, None),
    ],
)
def test_a_filter_that_breaks_a_rule_about_records_is_found(part, rule):
    if rule is None:
        check_filter(part)
        return
    with pytest.raises(AssertionError, match=rule):
        check_filter(part)
