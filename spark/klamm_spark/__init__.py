"""The observer `audit`, and the pipeline that ships its spool to a lake with Spark.

`klamm serve` imports no PySpark and starts no JVM.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_request_observers() -> Iterator[Provider]:
    """The observer of requests."""
    yield Provider(
        "audit",
        "klamm_spark.observer.audit:AuditObserver",
        settings="klamm_spark.settings.audit:AuditSettings",
        summary="every request, connection, authentication and administrative act as an event in a crash-safe spool",
    )


@hookimpl
def klamm_request_filters() -> Iterator[Provider]:
    """The filter that refuses requests for `on_full = "refuse"`."""
    yield Provider(
        "audit",
        "klamm_spark.observer.audit:AuditFilter",
        settings="klamm_spark.settings.audit:AuditSettings",
        summary='refuses requests that the audit cannot record; for `on_full = "refuse"`',
    )


@hookimpl
def klamm_commands() -> Iterator[Provider]:
    """The command `klamm audit`."""
    yield Provider(
        "audit",
        "klamm_spark.cli:main",
        summary="ship the audit spool to a lake with Spark, verify it, report on it",
    )
