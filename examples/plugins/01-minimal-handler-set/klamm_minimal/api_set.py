"""The handler set `minimal`: one broker, no topics."""

from __future__ import annotations

from klamm import ApiSet, RequestContext, handles
from klamm.wire.messages import metadata
from klamm.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

_NODE_ID = 1


class Minimal(ApiSet):
    """One instance serves all listeners that name it; its methods are called on many threads."""

    @handles(metadata, versions=metadata.VERSIONS, blocking=False)
    def metadata(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        """One broker, at the address that this client came to."""
        host, port = context.listener.advertised
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=_NODE_ID, host=host, port=port)],
            cluster_id="minimal",
            controller_id=_NODE_ID,
        )
