"""The shared table of client quotas: AlterClientQuotas writes it, throttles and connection gates read it (KIP-546).

A row is `{"entity": {type: name, …}, "quotas": {key: value, …}}`. Its key is the result of `client_quota_key`. A name
None means the default of the type. The types are Kafka's: `user`, `client-id`, both together, or `ip`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from klamm.shared.tables import Row

CLIENT_QUOTAS: Final = "client_quotas"
"""The name of the table."""

QuotaEntity: TypeAlias = Mapping[str, str | None]
"""The entity of a quota: maps `user`, `client-id` or `ip` to a name, or to None for the default (KIP-546)."""


def client_quota_key(entity: QuotaEntity) -> str:
    """Return the key of an entity's row. It does not depend on the order of the entity's parts."""
    return json.dumps(entity, sort_keys=True, separators=(",", ":"))


def quotas_by_entity(rows: Mapping[str, Row]) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
    """Yield entities and their quotas, from a snapshot of the table."""
    for row in rows.values():
        yield row["entity"], row["quotas"]
