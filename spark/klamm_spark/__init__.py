"""The observer and filter `audit`, and the commands that read the audit's spool and lake.

klamm imports this module at every start and calls its hooks. `klamm serve` imports no PySpark and starts no JVM.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_request_observers() -> Iterator[Provider]:
    """Yield the observer of requests."""
    yield Provider(
        "audit",
        "klamm_spark.observer.audit:AuditObserver",
        settings="klamm_spark.settings.audit:AuditSettings",
        summary="every request, connection, authentication and administrative act as an event in a crash-safe spool",
    )


@hookimpl
def klamm_request_filters() -> Iterator[Provider]:
    """Yield the filter that refuses requests for `on_full = "refuse"`."""
    yield Provider(
        "audit",
        "klamm_spark.observer.audit:AuditFilter",
        settings="klamm_spark.settings.audit:AuditSettings",
        summary='refuses requests that the audit cannot record; for `on_full = "refuse"`',
    )


@hookimpl
def klamm_commands() -> Iterator[Provider]:
    """Yield the command `klamm audit`."""
    yield Provider(
        "audit",
        "klamm_spark.cli:main",
        summary="ship the audit spool to a lake with Spark, verify it, report on it",
    )
