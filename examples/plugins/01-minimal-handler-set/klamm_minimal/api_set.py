"""The handler set `minimal`: one broker, no topics."""

from __future__ import annotations

from klamm import ApiSet, RequestContext, handles
from klamm.wire.messages import metadata
from klamm.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

_NODE_ID = 1


class Minimal(ApiSet):
    """Answers Metadata. One instance serves all listeners that name it, so many threads call its methods."""

    @handles(metadata, versions=metadata.VERSIONS, blocking=False)
    def metadata(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        """Return one broker, at the address of this client's listener. This runs on the processor's thread."""
        host, port = context.listener.advertised
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=_NODE_ID, host=host, port=port)],
            cluster_id="minimal",
            controller_id=_NODE_ID,
        )
