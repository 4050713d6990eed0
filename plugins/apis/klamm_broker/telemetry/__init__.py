"""Client telemetry (KIP-714): subscriptions to metrics of clients, and the metrics that clients push."""
