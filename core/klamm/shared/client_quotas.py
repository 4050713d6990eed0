"""The shared table of client quotas: AlterClientQuotas writes it, throttles and connection gates read it (KIP-546).

A row is `{"entity": {type: name, …}, "quotas": {key: value, …}}` under the key that `client_quota_key` returns; the
name None means the default of its type. Types are Kafka's: `user`, `client-id`, both together, or `ip`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from klamm.shared.tables import Row

CLIENT_QUOTAS: Final = "client_quotas"
"""Name of the table."""

QuotaEntity: TypeAlias = Mapping[str, str | None]
"""The entity of a quota: `user`, `client-id` or `ip`, each with a name, or None for the default (KIP-546)."""


def client_quota_key(entity: QuotaEntity) -> str:
    """Return the key of an entity's row; the order of its parts makes no difference."""
    return json.dumps(entity, sort_keys=True, separators=(",", ":"))


def quotas_by_entity(rows: Mapping[str, Row]) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
    """Entities and their quotas, from a snapshot of the table."""
    for row in rows.values():
        yield row["entity"], row["quotas"]
