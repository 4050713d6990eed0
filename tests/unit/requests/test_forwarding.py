"""Tests of the throttle time in responses that were not decoded."""

import pytest

from klamm.forwarding import STREAMED_FROM_BYTES, OpaqueResponse, ResponseStream
from klamm.wire.messages.fetch import FetchResponse
from klamm.wire.messages.heartbeat import HeartbeatResponse
from klamm.wire.messages.sasl_handshake import SaslHandshakeResponse


@pytest.mark.parametrize(("own_ms", "expected_ms"), [(0, 50), (49, 50), (50, 50), (70, 70)])
def test_the_longer_throttle_time_is_sent(own_ms, expected_ms):
    message = HeartbeatResponse(own_ms, 3)
    for response in (OpaqueResponse(message.encode(4)), OpaqueResponse(message.encode(4), None, message)):
        throttled = response.throttled(HeartbeatResponse.API_KEY, 4, 50)
        assert HeartbeatResponse.decode(4, throttled.encode(4)) == HeartbeatResponse(expected_ms, 3)
    assert message.throttle_time_ms == own_ms


@pytest.mark.parametrize(("own_ms", "expected_ms"), [(0, 50), (50, 50), (70, 70)])
def test_the_longer_throttle_time_is_sent_at_the_beginning_of_a_stream(own_ms, expected_ms):
    stream = ResponseStream(STREAMED_FROM_BYTES + 1)
    body = FetchResponse(own_ms, 3).encode(12)
    throttled = OpaqueResponse(body, stream).throttled(FetchResponse.API_KEY, 12, 50)
    assert FetchResponse.decode(12, bytes(throttled.body)) == FetchResponse(expected_ms, 3)
    assert throttled.stream is stream


def test_responses_without_a_throttle_time_stay_unchanged():
    plain = OpaqueResponse(SaslHandshakeResponse(0, ["PLAIN"]).encode(1))
    assert plain.throttled(SaslHandshakeResponse.API_KEY, 1, 50) is plain
    malformed = OpaqueResponse(b"\0")
    assert malformed.throttled(HeartbeatResponse.API_KEY, 4, 50) is malformed
    unknown = OpaqueResponse(b"\0")
    assert unknown.throttled(9999, 0, 50) is unknown
    first = OpaqueResponse(FetchResponse().encode(0), ResponseStream(STREAMED_FROM_BYTES + 1))
    assert first.throttled(FetchResponse.API_KEY, 0, 50) is first
