"""The handler of ApiVersions (KIP-35, KIP-511, KIP-584, KIP-1242).

A listener adds it to a handler set that has none of its own. It reports the APIs and the features of that set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from klamm.api.api_set import ApiHandler
from klamm.api.context import ConnectionContext, RequestContext
from klamm.shared.features import FeatureLevels, Features
from klamm.wire.chunks import Buffer
from klamm.wire.errors import ErrorCode
from klamm.wire.headers import decode_request_header
from klamm.wire.messages import api_versions
from klamm.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from klamm.wire.primitives import WireError

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_PRODUCE: Final = 0
_FIRST_VERSION_WITH_LEVEL_0: Final = 4
_NO_NODE: Final = -1
_Report: TypeAlias = Callable[[FeatureLevels], FeatureLevels]
IsMeant: TypeAlias = Callable[[str, int, ConnectionContext], bool]
"""`ApiSet.is_meant`."""


class _PreparedResponse(ApiVersionsResponse):
    """An answer that seldom changes. It is encoded once per version."""

    __slots__ = ("_encoded",)

    def __init__(self, answer: ApiVersionsResponse) -> None:
        super().__init__(*(getattr(answer, name) for name in ApiVersionsResponse.__slots__))
        self._encoded = {version: super(_PreparedResponse, self).encode(version) for version in api_versions.VERSIONS}

    def encode(self, version: int) -> bytes:
        # A copy with a throttle time is encoded each time.
        return super().encode(version) if self.throttle_time_ms else self._encoded[version]


def api_versions_response(
    handlers: Iterable[ApiHandler], own_versions: range = api_versions.VERSIONS
) -> ApiVersionsResponse:
    """Return the API versions for clients, ordered by API key; `own_versions` are those of ApiVersions itself."""
    ranges = {handler.api_key: (handler.min_version, handler.max_version) for handler in handlers if handler.advertised}
    ranges.setdefault(api_versions.API_KEY, (own_versions.start, own_versions.stop - 1))
    if _PRODUCE in ranges:
        # Because of a bug in librdkafka, Produce is listed from version 0 on, as Kafka does (KAFKA-18659).
        ranges[_PRODUCE] = (0, ranges[_PRODUCE][1])
    return ApiVersionsResponse(api_keys=[ApiVersion(key, *versions) for key, versions in sorted(ranges.items())])


def unsupported_version_response(min_version: int, max_version: int) -> ApiVersionsResponse:
    """Return the answer to an ApiVersions request of an unknown version; it is sent in version 0."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_versions.API_KEY, min_version, max_version)]
    )


def error_of_request(request: ApiVersionsRequest, context: RequestContext, is_meant: IsMeant) -> ErrorCode:
    """Return the error of an ApiVersions request. If the client's software is valid, store its name and version.

    INVALID_REQUEST: the software has no valid name, or the request names only one of cluster and node.
    REBOOTSTRAP_REQUIRED: the client wanted to reach another node, or another cluster (KIP-1242).
    """
    cluster_id, node_id = request.cluster_id, request.node_id
    if (cluster_id is None) is not (node_id == _NO_NODE) or not note_client_software(request, context):
        return ErrorCode.INVALID_REQUEST
    if cluster_id is not None and not is_meant(cluster_id, node_id, context.connection):
        return ErrorCode.REBOOTSTRAP_REQUIRED
    return ErrorCode.NONE


def note_client_software(request: ApiVersionsRequest, context: RequestContext) -> bool:
    """Store the client software name and version (KIP-511) and return True; return False if one is not valid."""
    if context.api_version < 3:
        return True
    connection = context.connection
    name, version = request.client_software_name, request.client_software_version
    if connection.client_software_name != name or connection.client_software_version != version:
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            return False
        connection.client_software_name = name
        connection.client_software_version = version
    return True


def _with_features(answer: ApiVersionsResponse, levels: FeatureLevels, least: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=answer.api_keys,
        supported_features=[
            SupportedFeatureKey(each.name, each.min_version, each.max_version)
            for each in levels.features
            if each.min_version >= least
        ],
        finalized_features_epoch=levels.epoch,
        finalized_features=[
            FinalizedFeatureKey(each.name, each.level, each.level) for each in levels.features if each.level > 0
        ],
    )


def _everything(levels: FeatureLevels) -> FeatureLevels:
    return levels


def _always(cluster_id: str, node_id: int, connection: ConnectionContext) -> bool:  # noqa: ARG001
    return True


def api_versions_handler(
    answer: ApiVersionsResponse, features: Features, report: _Report = _everything, is_meant: IsMeant = _always
) -> Callable[[ApiVersionsRequest, RequestContext], ApiVersionsResponse]:
    """Return a handler that adds the current features, filtered by `report`, to this answer.

    The handler answers the errors of `error_of_request`.
    """

    def prepare(levels: FeatureLevels) -> tuple[FeatureLevels, _PreparedResponse, _PreparedResponse]:
        # Old clients refuse a feature whose lowest level is 0 (KAFKA-17492). So they get a second answer, without such
        # features.
        old, new = (_PreparedResponse(_with_features(answer, report(levels), least)) for least in (1, 0))
        return levels, old, new

    prepared = prepare(features.current)

    def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        nonlocal prepared
        if error := error_of_request(request, context, is_meant):
            return ApiVersionsResponse(error_code=error)
        levels = features.current
        if levels is not prepared[0]:
            prepared = prepare(levels)
        _, old, new = prepared
        return old if context.api_version < _FIRST_VERSION_WITH_LEVEL_0 else new

    return handle


class ApiVersionsAnswerer:
    """Answers ApiVersions requests of clients that are not authenticated yet.

    A listener has one; its processors call it.
    """

    def __init__(self, handlers: Iterable[ApiHandler]) -> None:
        handler = next(one for one in handlers if one.api_key == api_versions.API_KEY)
        self._handle = handler.handle
        self._versions = range(handler.min_version, handler.max_version + 1)

    def __call__(self, frame: Buffer, connection: ConnectionContext) -> bytes:
        """Return the frame of the answer, without its size field.

        Raises ValueError for a frame that cannot be parsed.
        """
        try:
            api_key, version, correlation_id, client_id, offset = decode_request_header(frame)
            context = RequestContext(connection, _NO_RESPONDER, api_key, version, correlation_id, client_id, len(frame))
            if version not in self._versions:
                answer = unsupported_version_response(self._versions.start, self._versions.stop - 1)
                version = 0
            else:
                request = ApiVersionsRequest.decode(version, frame, offset)
                if request.cluster_id is not None and request.node_id != _NO_NODE:
                    # As in Kafka, only authenticated clients get REBOOTSTRAP_REQUIRED.
                    request.cluster_id, request.node_id = None, _NO_NODE
                answer = self._handle(request, context)
        except WireError as error:
            raise ValueError(f"malformed ApiVersions request: {error}") from error
        return correlation_id.to_bytes(4, "big", signed=True) + answer.encode(version)


class _NoResponder:
    """The responder of requests that are answered at once. It is never called."""

    def respond(self, context: RequestContext, response: Any) -> None:
        raise AssertionError

    def close_connection(self, context: RequestContext, reason: str) -> None:
        raise AssertionError


_NO_RESPONDER: Final = _NoResponder()


def with_api_versions(
    handlers: Iterable[ApiHandler],
    features: Features | None = None,
    limits: Mapping[int, tuple[int, int]] | None = None,
    report: _Report = _everything,
    is_meant: IsMeant = _always,
) -> list[ApiHandler]:
    """Return the handlers of a set, and a handler of ApiVersions if the set has none.

    `limits` maps API keys to the oldest and the latest version to serve. An API that is not in `limits` is not served.
    `report(levels)` returns the features that ApiVersions reports. `is_meant` is `ApiSet.is_meant`.
    """
    complete: list[ApiHandler] = list(handlers if limits is None else _within(limits, handlers))
    if not any(handler.api_key == api_versions.API_KEY for handler in complete):
        latest = api_versions.VERSIONS.stop - 1
        if limits is not None:
            latest = min(latest, limits[api_versions.API_KEY][1])
        complete.append(_default_api_versions(complete, features or Features(), latest, report, is_meant))
    return complete


def _within(limits: Mapping[int, tuple[int, int]], handlers: Iterable[ApiHandler]) -> Iterator[ApiHandler]:
    for handler in handlers:
        oldest, latest = limits.get(handler.api_key, (0, -1))
        oldest, latest = max(oldest, handler.min_version), min(latest, handler.max_version)
        if oldest <= latest:
            yield replace(handler, min_version=oldest, max_version=latest)


def _default_api_versions(
    handlers: Sequence[ApiHandler], features: Features, latest: int, report: _Report, is_meant: IsMeant
) -> ApiHandler:
    """Return a handler of ApiVersions for these handlers, which itself serves versions up to `latest`."""
    module: Any = api_versions
    oldest = api_versions.VERSIONS.start
    answer = api_versions_response(handlers, range(oldest, latest + 1))
    handle = api_versions_handler(answer, features, report, is_meant)
    return ApiHandler(
        api_key=api_versions.API_KEY,
        name=api_versions.NAME,
        min_version=oldest,
        max_version=latest,
        load=lambda: (module, handle),
        blocking=False,
    )
