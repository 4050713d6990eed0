"""The handler set `echo`: a broker without topics."""

from __future__ import annotations

from klamm import ApiSet, ErrorCode, RequestContext, handles
from klamm.wire.messages import metadata
from klamm.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)


class Echo(ApiSet):
    """The handlers of a broker without topics.

    Metadata: all versions. Topics that the request names are answered with UNKNOWN_TOPIC_OR_PARTITION.
    """

    @handles(metadata, versions=metadata.VERSIONS, blocking=False)
    def metadata(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        host, port = context.listener.advertised
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host=host, port=port)],
            cluster_id="klamm-echo",
            controller_id=1,
            topics=[
                MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic.name or "", topic.topic_id)
                for topic in request.topics or ()
            ],
        )
