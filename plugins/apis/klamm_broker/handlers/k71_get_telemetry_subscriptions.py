"""GetTelemetrySubscriptions, version 0 (KIP-714): names the metrics that a client is to push, and the interval.

The response combines all subscriptions (configs of the resource CLIENT_METRICS) that match the client, with the
shortest of their intervals. Without a subscription there are no metrics. A client with the id zero gets a new id.
Follows `ClientMetricsManager`.

- A client that sends the request again before its interval is over: THROTTLING_QUOTA_EXCEEDED. This does not apply if
  subscriptions have changed, or if the last push was refused because of its subscription id or its compression.

Authorization: none.
"""

from __future__ import annotations

from klamm import RequestContext
from klamm.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from klamm_broker.services import BrokerServices
from klamm_broker.telemetry.clients import CODECS


def telemetry_subscription(
    broker: BrokerServices, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """Return the client's subscription. Raises KafkaError. Runs on the processor's thread, so it must not block."""
    client = broker.telemetry.subscribe(request.client_instance_id, context)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client.id,
        subscription_id=client.subscription_id,
        accepted_compression_types=[int(codec) for codec in CODECS],
        push_interval_ms=client.interval_ms,
        telemetry_max_bytes=broker.telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(client.metrics),
    )
