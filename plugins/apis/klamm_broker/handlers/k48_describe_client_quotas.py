"""DescribeClientQuotas, versions 0 to 1.

Describes the quotas of the entities that match all components of the request. A component matches one type of an
entity: a name, the default, or any name. Unless `strict` is set, an entity may have further types. Follows
`ClientQuotasImage.describe`.

- Authorization: DESCRIBE_CONFIGS on the cluster.
- A type twice, an empty type, a name that contradicts the kind of match, `ip` with other types: INVALID_REQUEST. A type
  other than `user`, `client-id`, `ip`: UNSUPPORTED_VERSION.

Only quotas that AlterClientQuotas has set are returned, not the defaults of the configuration.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.shared import QuotaEntity, quotas_by_entity
from klamm.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from klamm_broker.configs.client_quotas import ENTITY_TYPES, IP, quota_table
from klamm_broker.security.authorization import require_cluster
from klamm_broker.services import BrokerServices

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


def matching_quotas(
    _broker: BrokerServices, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Return the quotas that match. Raises KafkaError. Runs on the processor's thread, so it must not block."""
    require_cluster(context, AclOperation.DESCRIBE_CONFIGS)
    _check(request.components)
    rows = quota_table(context).rows
    context.expect_answer(len(rows))
    entries = [
        EntryData(
            [EntityData(entity_type, name) for entity_type, name in entity.items()],
            [ValueData(key, value) for key, value in quotas.items()],
        )
        for entity, quotas in quotas_by_entity(rows)
        if _matches(entity, request.components, request.strict)
    ]
    return DescribeClientQuotasResponse(entries=entries)


def _check(components: Sequence[ComponentData]) -> None:
    seen: set[str] = set()
    for component in components:
        entity_type = component.entity_type
        if not entity_type:
            raise _invalid("an entity type must not be empty")
        if entity_type in seen:
            raise _invalid(f"{entity_type} is named more than once")
        if entity_type not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no entity type {entity_type}")
        seen.add(entity_type)
        if component.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise _invalid(f"there is no match type {component.match_type}")
        if (component.match is None) == (component.match_type == _EXACT):
            raise _invalid(f"the match type {component.match_type} of {entity_type} contradicts its match")
    if IP in seen and len(seen) > 1:
        raise _invalid("ip cannot be combined with another entity type")


def _matches(entity: QuotaEntity, components: Sequence[ComponentData], strict: bool) -> bool:
    if strict and len(entity) != len(components):
        return False
    return all(
        component.entity_type in entity
        and (component.match_type == _SPECIFIED or entity[component.entity_type] == component.match)
        for component in components
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
