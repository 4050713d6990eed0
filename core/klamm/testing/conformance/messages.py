"""The messages that suites send: requests and responses of every API, with default values and filled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from klamm.testing.conformance.filled import filled_request
from klamm.wire.api_keys import ApiKey, load
from klamm.wire.primitives import WireError


class Exchange(NamedTuple):
    """A request of one version, decoded as in a server, and a response to it."""

    version: int
    request: Any
    response: Any


def exchanges(api_key: int, min_version: int | None = None, max_version: int | None = None) -> Iterator[Exchange]:
    """Yield two exchanges for each version of an API: one with default values, and one with a filled request.

    By default the versions are those that servers offer. Messages that cannot be encoded are left out.
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
    """Return an exchange of an API's newest version."""
    return list(exchanges(api_key))[-1]
