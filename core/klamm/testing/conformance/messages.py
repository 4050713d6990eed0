"""Messages that suites send: requests and responses of every API, empty ones and filled ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from klamm.testing.conformance.filled import filled_request
from klamm.wire.api_keys import ApiKey, load
from klamm.wire.primitives import WireError


class Exchange(NamedTuple):
    """A request of one version, as a server decodes it, and a response to it."""

    version: int
    request: Any
    response: Any


def exchanges(api_key: int, min_version: int | None = None, max_version: int | None = None) -> Iterator[Exchange]:
    """Yield two exchanges for each version of an API that servers offer, or for the versions between two: one with
    default values, and one with a filled request. Messages that cannot be encoded are left out.
    """
    module = load(api_key)
    request_class, response_class = (vars(module)[f"{module.NAME}{half}"] for half in ("Request", "Response"))
    first = module.VERSIONS.start if min_version is None else min_version
    last = module.VERSIONS.stop - 1 if max_version is None else max_version
    for version in range(first, last + 1):
        try:
            request = request_class.decode(version, request_class().encode(version))
            response_class().encode(version)
        except WireError:
            continue
        yield Exchange(version, request, response_class())
        yield Exchange(version, filled_request(request_class, version), response_class())


def first_exchange(api_key: int = ApiKey.METADATA) -> Exchange:
    """The newest one of an API."""
    return list(exchanges(api_key))[-1]
