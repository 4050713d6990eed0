"""The filter `faults`: injects errors, delays and broken connections, for tests of clients."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_request_filters() -> Iterator[Provider]:
    """Yield the filter `faults`."""
    yield Provider(
        "faults",
        "klamm_faults.filter:FaultFilter",
        settings="klamm_faults.fault_settings:FaultsSettings",
        summary="injects faults by rules: errors, delays, truncated, wrong or missing answers; for tests",
    )
