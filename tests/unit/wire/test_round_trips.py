"""Random values of every message and version are read back. Damaged bytes cause only WireError."""

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm.wire.api_keys import SPECS
from klamm.wire.primitives import WireError

from .strategies import DESCRIBED

few = settings(
    max_examples=6,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_all_messages_are_described():
    apis = [described for described in DESCRIBED if described.api_key >= 0]
    assert {described.name for described in apis} == {
        spec.name + kind for spec in SPECS for kind in ("Request", "Response")
    }
    for described in apis:
        assert described.versions == described.module.DECODABLE
        assert set(described.module.VERSIONS) <= set(described.module.DECODABLE)


@pytest.mark.parametrize("described", DESCRIBED, ids=repr)
@few
@given(st.data())
def test_encoded_messages_are_read_back(described, data):
    for version in described.versions:
        message = data.draw(described.values(version))
        encoded = message.encode(version)
        again = described.message_class.decode(version, b"head" + encoded, 4)
        assert again == message
        assert again.encode(version) == encoded


@pytest.mark.parametrize("described", DESCRIBED, ids=repr)
@few
@given(st.data())
def test_an_incomplete_message_is_refused(described, data):
    version = data.draw(st.sampled_from(described.versions))
    encoded = data.draw(described.values(version)).encode(version)
    for cut in range(len(encoded)):
        with pytest.raises(WireError):
            described.message_class.decode(version, encoded[:cut])


@pytest.mark.parametrize("described", DESCRIBED, ids=repr)
@few
@given(st.data())
def test_damaged_bytes_are_a_message_or_raise_wire_error(described, data):
    version = data.draw(st.sampled_from(described.versions))
    encoded = data.draw(described.values(version)).encode(version)
    bad = st.sampled_from([b"\0", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff"])
    for _ in range(20):
        at = data.draw(st.integers(0, len(encoded)))
        wrong = data.draw(bad)
        with contextlib.suppress(WireError):
            described.message_class.decode(version, encoded[:at] + wrong + encoded[at + len(wrong) :])
