"""AlterClientQuotas, versions 0 to 1: sets and removes quotas of users, client ids, pairs of both, or addresses.

Changes of one entity are atomic and durable, and apply from the next request on. Follows
`ClientQuotaControlManager.alterClientQuotas`.

- Authorization: ALTER_CONFIGS on the cluster.
- An unknown type, an empty name, `ip` with other types, an unknown key, a key twice, a value that is not positive, a
  byte rate or connection rate that is not whole: INVALID_REQUEST for the entity.
- An entity that is named twice: INVALID_REQUEST for it, and the first alteration takes effect, as in Kafka.
- `validate_only` returns the result and changes nothing.

Deviation: `ip` takes addresses only; Kafka also takes host names, which it resolves once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.shared import QuotaEntity, Row, client_quota_key
from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    ResponseEntityData,
    ResponseEntryData,
)
from klamm_broker.configs.client_quotas import check_value, keys_of, quota_table
from klamm_broker.security.authorization import require_cluster
from klamm_broker.services import BrokerServices


def alter_quotas(
    _broker: BrokerServices, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Alter quotas, or only validate the request. Raises KafkaError if the store failed. Runs on a request handler's
    thread.
    """
    require_cluster(context, AclOperation.ALTER_CONFIGS)
    outcomes: dict[str, ResponseEntryData] = {}
    changed_quotas: list[tuple[str, str, float | None, float | None]] = []

    def change(rows: Mapping[str, Row]) -> dict[str, Row | None]:
        changes: dict[str, Row | None] = {}
        for entry in request.entries:
            entity = {part.entity_type: part.entity_name for part in entry.entity}
            key = client_quota_key(entity)
            outcome = ResponseEntryData(
                0, None, [ResponseEntityData(entity_type, name) for entity_type, name in entity.items()]
            )
            try:
                if key in outcomes:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the entity is named more than once")
                row = rows.get(key)
                changes[key] = altered = _altered(entity, row, entry.ops)
                before, after = _quotas(row), _quotas(altered)
                changed_quotas.extend((key, each.key, before.get(each.key), after.get(each.key)) for each in entry.ops)
            except KafkaError as error:
                outcome.error_code, outcome.error_message = error.error_code, error.message
            outcomes[key] = outcome
        return changes

    table = quota_table(context)
    if request.validate_only:
        change(table.rows)
    else:
        table.modify(change)
        for key, name, old, new in changed_quotas:
            context.note_change("CLIENT_QUOTA", key, name, _text(old), _text(new))
    return AlterClientQuotasResponse(entries=list(outcomes.values()))


def _quotas(row: Row | None) -> dict[str, float]:
    return dict(row["quotas"]) if row is not None else {}


def _text(value: float | None) -> str | None:
    return None if value is None else str(value)


def _altered(entity: QuotaEntity, row: Row | None, operations: Sequence[OpData]) -> Row | None:
    """Return the row of an entity after the operations; None if no quota is left. Raises KafkaError INVALID_REQUEST."""
    keys = keys_of(entity)
    quotas = _quotas(row)
    seen = set()
    for operation in operations:
        if operation.key in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{operation.key} is given more than once")
        seen.add(operation.key)
        if operation.remove:
            quotas.pop(operation.key, None)
        else:
            check_value(keys, operation.key, operation.value)
            quotas[operation.key] = operation.value
    return {"entity": dict(entity), "quotas": quotas} if quotas else None
