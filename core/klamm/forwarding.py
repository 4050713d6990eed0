"""For handler sets that forward requests to other servers: `ApiSet.pipelined` and `ApiHandler.opaque`."""

from klamm.api.forwarding import (
    STREAMED_FROM_BYTES,
    ConnectionLink,
    OpaqueRequest,
    OpaqueResponse,
    ResponseStream,
    StreamedRecords,
)
from klamm.requests.api_versions import note_client_software
from klamm.requests.pending import note_upstream_node, request_frame

__all__ = [
    "ConnectionLink",
    "OpaqueRequest",
    "OpaqueResponse",
    "ResponseStream",
    "STREAMED_FROM_BYTES",
    "StreamedRecords",
    "note_client_software",
    "note_upstream_node",
    "request_frame",
]
