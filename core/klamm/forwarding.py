"""Names for handler sets that forward requests to other servers with `ApiSet.pipelined` and `ApiHandler.opaque`."""

from klamm.api.forwarding import (
    STREAMED_FROM_BYTES,
    ConnectionLink,
    OpaqueRequest,
    OpaqueResponse,
    ResponseStream,
    StreamedRecords,
)
from klamm.requests.api_versions import error_of_request
from klamm.requests.pending import large_response, note_upstream_node, request_frame
from klamm.runtime.shared_interpreter import free_in_pieces

__all__ = [
    "ConnectionLink",
    "OpaqueRequest",
    "OpaqueResponse",
    "ResponseStream",
    "STREAMED_FROM_BYTES",
    "StreamedRecords",
    "error_of_request",
    "free_in_pieces",
    "large_response",
    "note_upstream_node",
    "request_frame",
]
