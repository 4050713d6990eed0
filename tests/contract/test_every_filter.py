"""Tests with every registered filter, alone and stacked, before a broker and before a gateway."""

import struct

import pytest

import klamm_filters
from klamm import ErrorCode, KafkaError, Provider, RequestFilter, hookimpl
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.compression import Codec
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.metadata import MetadataRequest
from tests.contract.filter_settings import SETTINGS, STRICT, alone_and_stacked, pairs, registered, settings_of
from tests.contract.filtered import API_SETS, served
from tests.contract.test_record_filters import INVALID_RECORD, batch, fetch, produce, records_of
from tests.contract.test_refused_bytes import BAD
from tests.peers.wire_client import encode_frame

STACKS = [
    *alone_and_stacked(),
    *(pytest.param(pair, marks=pytest.mark.slow) for pair in pairs()),
]
on_both = pytest.mark.parametrize("api_set", API_SETS)
of_every_stack = pytest.mark.parametrize("names", STACKS, ids="-".join)
CHECKED = [stack for stack in STACKS if "record_validation" in (stack if isinstance(stack, tuple) else stack.values[0])]
GOOD, WRONG = b'{"id": 1}', b'{"id": "1"}'
BEHIND_AUTHENTICATION = encode_frame(MetadataRequest([]), 12)


def test_every_registered_filter_has_settings_here():
    missing, gone = set(registered()) - set(SETTINGS), set(SETTINGS) - set(registered())
    assert not missing, f"add settings for {sorted(missing)} to tests/contract/filter_settings.py"
    assert not gone, f"no filter has the names {sorted(gone)} of tests/contract/filter_settings.py"


@on_both
@of_every_stack
def test_records_come_back_as_they_were_sent(api_set, names, tmp_path):
    with served(api_set, settings_of(names, tmp_path)) as (_broker, front), RawClient(front.address()) as client:
        front.admin.create_topic("t")
        (partition,) = produce(client, "t", batch((b"k", b"v"), (None, b"w")))
        assert partition.error_code == 0
        assert [(one.key, one.value) for one in records_of(fetch(client, "t"))] == [(b"k", b"v"), (None, b"w")]


@on_both
@pytest.mark.parametrize("names", CHECKED, ids="-".join)
def test_a_schema_refuses_only_batches_with_invalid_records(api_set, names, tmp_path):
    """If the schema comes after `record_encryption`, it refuses all values, because they are ciphertext."""
    sees_plain = "record_encryption" not in names[: names.index("record_validation")]
    with served(api_set, settings_of(names, tmp_path)) as (_broker, front), RawClient(front.address()) as client:
        front.admin.create_topic(STRICT, 2)
        wrong = batch((b"k", GOOD), (b"k", WRONG), (b"k", GOOD), codec=Codec.ZSTD)
        refused, passed = produce(client, STRICT, wrong, batch((b"k", GOOD)))
        assert refused.error_code == INVALID_RECORD
        assert [one.batch_index for one in refused.record_errors] == ([1] if sees_plain else [0, 1, 2])
        assert passed.error_code == (0 if sees_plain else INVALID_RECORD)
        assert [front.admin.offset(STRICT, number) for number in range(2)] == [0, int(sees_plain)]


@on_both
@of_every_stack
def test_invalid_bytes_close_the_connection_after_the_earlier_request_is_answered(api_set, names, tmp_path):
    with served(api_set, settings_of(names, tmp_path)) as (_broker, front):
        for data in BAD.values():
            with RawClient(front.address(), timeout_s=20) as client:
                client.send_bytes(BEHIND_AUTHENTICATION + data)
                (size,) = struct.unpack(">i", client._take(4))
                client._take(size)
                assert client.at_end()


class Refuses(RequestFilter):
    """A filter that refuses each response."""

    def on_response(self, response, context):
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "on purpose")


class RefusesAll:
    @hookimpl
    def klamm_request_filters(self):
        yield Provider("refuses", f"{__name__}:Refuses")


def test_an_error_of_a_filter_before_a_prefix_has_the_names_of_the_client(tmp_path):
    """The filter before the prefix sees the names of the client, and its error has these names."""
    settings = settings_of(("refuses", "topic_prefix"), tmp_path)
    with (
        EmbeddedServer(settings, plugins=[klamm_filters, RefusesAll()]) as server,
        RawClient(server.address()) as client,
    ):
        (topic,) = client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7).topics
        assert (topic.name, topic.error_code) == ("t", ErrorCode.POLICY_VIOLATION)
