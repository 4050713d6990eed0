"""Requests that the gateway answers itself: ApiVersions, and SASL requests that come too late.

ApiVersions offers the APIs that both klamm and every node of the cluster support. The features are those of the
cluster, because clients choose protocols by features. Until a node has answered, ApiVersions fails with
BROKER_NOT_AVAILABLE, and clients try again. The handlers run on the loop's thread.
"""

from __future__ import annotations

from typing import Final

from klamm import ErrorCode, RequestContext, handles
from klamm.forwarding import error_of_request
from klamm.wire.messages import api_versions, sasl_authenticate, sasl_handshake
from klamm.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from klamm_gateway.client_login import HANDSHAKE_VERSIONS
from klamm_gateway.forwarded_apis import forwarded_apis
from klamm_gateway.layout import Cluster, Layout

_FIRST_VERSION_WITH_LEVEL_0: Final = 4
_OWN: Final = (api_versions, sasl_handshake, sasl_authenticate)


@handles(api_versions, versions=api_versions.VERSIONS, blocking=False)
def versions_of_cluster(cluster: Cluster, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """Return the APIs and versions that both the cluster and klamm know."""
    if error := error_of_request(request, context, cluster.is_meant):
        return ApiVersionsResponse(error_code=error)
    offers = cluster.offers
    layout = cluster.layout
    if layout.versions is None:
        return ApiVersionsResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
    key = context.listener.name, context.api_version >= _FIRST_VERSION_WITH_LEVEL_0
    offer = offers.get(key)
    if offer is None:
        offer = offers[key] = _offer(cluster, layout, *key)
    return offer


def _offer(cluster: Cluster, layout: Layout, listener: str, from_level_0: bool) -> ApiVersionsResponse:
    described = layout.described
    return ApiVersionsResponse(
        api_keys=_offered(cluster, layout, listener),
        # Clients of earlier versions refuse a feature that begins with level 0 (KAFKA-17492).
        supported_features=[each for each in described.supported_features if each.min_version > 0 or from_level_0],
        finalized_features_epoch=described.finalized_features_epoch,
        finalized_features=described.finalized_features,
    )


def _offered(cluster: Cluster, layout: Layout, listener: str) -> list[ApiVersion]:
    assert layout.versions is not None
    offered = [ApiVersion(own.API_KEY, own.VERSIONS.start, own.VERSIONS.stop - 1) for own in _OWN]
    if cluster.clients_log_in:
        offered[1].min_version = HANDSHAKE_VERSIONS.start
    for spec, own in forwarded_apis(unknown=listener in cluster.passing_unknown):
        theirs = layout.versions.get(spec.api_key, range(0))
        first, last = max(own.start, theirs.start), min(own.stop, theirs.stop) - 1
        if spec.api_key == 0:
            # Kafka lists Produce from version 0 on, because librdkafka has a bug that needs it (KAFKA-18659).
            first = theirs.start
        if first <= last:
            offered.append(ApiVersion(spec.api_key, first, last))
    return sorted(offered, key=lambda each: each.api_key)


@handles(sasl_handshake, versions=range(0, 2), blocking=False)
def late_handshake(
    _cluster: Cluster, _request: SaslHandshakeRequest, _context: RequestContext
) -> SaslHandshakeResponse:
    """Return ILLEGAL_SASL_STATE, because the client is authenticated or its listener has no SASL."""
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)


@handles(sasl_authenticate, versions=range(0, 3), blocking=False)
def late_authenticate(
    _cluster: Cluster, _request: SaslAuthenticateRequest, _context: RequestContext
) -> SaslAuthenticateResponse:
    """Return ILLEGAL_SASL_STATE, for the same reason as `late_handshake`."""
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, "the client is already authenticated")


LATE_LOGIN_HANDLERS: Final = (late_handshake, late_authenticate)
