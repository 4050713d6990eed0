"""The handler set `echo`: Metadata of a broker without topics. Every handler set also has ApiVersions."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_api_sets() -> Iterator[Provider]:
    """Yield the smallest handler set."""
    yield Provider(
        "echo", "klamm_echo.echo:Echo", summary="ApiVersions and Metadata only: the smallest example", workers="each"
    )
