"""The extension `schema_registry`: a Schema Registry for tests, with the REST API of Confluent's registry."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_extensions() -> Iterator[Provider]:
    """Yield the extension `schema_registry`."""
    yield Provider(
        "schema_registry",
        "klamm_schema_registry.extension:SchemaRegistry",
        settings="klamm_schema_registry.extension:SchemaRegistrySettings",
        summary="a Schema Registry for tests, with the REST API of Confluent's; schemas are kept in a topic",
    )
