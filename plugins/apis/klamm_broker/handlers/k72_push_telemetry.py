"""PushTelemetry, version 0 (KIP-714): takes the metrics of a client, and adds them to klamm's own metrics.

Values are kept by client, name and attributes; increments are added up. Follows `ClientMetricsManager`.

- An unknown client id, any push after a terminating one: INVALID_REQUEST.
- A push before the client's interval is over: THROTTLING_QUOTA_EXCEEDED, unless it is terminating.
- A subscription that has changed meanwhile: UNKNOWN_SUBSCRIPTION_ID. An unknown compression:
  UNSUPPORTED_COMPRESSION_TYPE. More than `telemetry.max.bytes`: TELEMETRY_TOO_LARGE. Metrics that cannot be read:
  INVALID_RECORD.

Authorization: none.
"""

from __future__ import annotations

from klamm import RequestContext
from klamm.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from klamm_broker.services import BrokerServices


def take_metrics(
    broker: BrokerServices, request: PushTelemetryRequest, context: RequestContext
) -> PushTelemetryResponse:
    """Add a client's metrics to the server's. Raises KafkaError. Runs on a request handler's thread."""
    broker.telemetry.push(
        request.client_instance_id,
        request.subscription_id,
        request.terminating,
        request.compression_type,
        bytes(request.metrics or b""),
        context,
    )
    return PushTelemetryResponse()
