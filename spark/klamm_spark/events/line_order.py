"""The order in which the server writes the fields of an event into a line of the spool.

See `klamm_spark.observer.encoder` and `klamm_spark.observer.recorder`.
"""

from __future__ import annotations

from typing import Final

from klamm_spark.events.event import CONNECTION

FIRST: Final = (
    *("schema_version", "event_id", "node", "boot", "seq", "time_us", "kind", "action", "outcome"),
    *("listener", "transport", "security_protocol", "client_address", "client_port", "connection_id", "principal"),
    *("client_software_name", "client_software_version", "tls_version", "tls_cipher", "sni", "sasl_mechanism"),
    *("client_id", "api_key", "api_name", "api_version", "correlation_id", "error_code", "error_name"),
    *(
        "attempted_principal",
        "certificate_subject",
        "certificate_issuer",
        "certificate_serial_number",
        "upstream_node_id",
        "reason",
        "gap_boot",
        "gap_first_seq",
        "gap_last_seq",
        "gap_count",
        "detail",
        "intent_id",
    ),
)
"""The first fields of a line, in this order. The fields of `REST` follow."""
CLOSED_AFTER: Final = "duration_ms"
"""In the line of a connection, this field comes before the bytes; in the line of a request, after `repeat_count`."""
REST: Final = (
    *("request_bytes", "response_bytes", "request_queue_time_ms", "local_time_ms", "remote_time_ms"),
    *("throttle_time_ms", "response_queue_time_ms", "send_time_ms", "total_time_ms", "total_time_max_ms"),
    *("repeat_count", CLOSED_AFTER, "part", "parts", "resources", "resource_count"),
)
"""The fields that follow those of `FIRST`."""
LINE_ORDER: Final = {CONNECTION: (*FIRST, CLOSED_AFTER, *(name for name in REST if name != CLOSED_AFTER))}
"""The order of the fields in lines of a kind, where it is another than `OTHER_ORDER`."""
OTHER_ORDER: Final = (*FIRST, *REST)
