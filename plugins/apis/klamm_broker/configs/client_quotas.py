"""The entities, keys and values of client quotas (KIP-546, KIP-612). The handlers of DescribeClientQuotas and
AlterClientQuotas call the functions, on any thread.
"""

from __future__ import annotations

import ipaddress
import math
from typing import Final

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.shared import CLIENT_QUOTAS, QuotaEntity, Table
from klamm_broker.numbers import INT32_MAX, INT64_MAX

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

# The largest value of each key. A key with a largest value takes integers only. None means that there is no largest
# value, and that fractions are allowed.
_USER_AND_CLIENT_KEYS: Final[dict[str, float | None]] = {
    "producer_byte_rate": INT64_MAX,
    "consumer_byte_rate": INT64_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_KEYS: Final[dict[str, float | None]] = {"connection_creation_rate": INT32_MAX}
_WHOLE_ENOUGH: Final = 1e-6


def quota_table(context: RequestContext) -> Table:
    """Return the shared table that throttles and connection gates read."""
    return context.listener.services.shared.table(CLIENT_QUOTAS)


def keys_of(entity: QuotaEntity) -> dict[str, float | None]:
    """Return the quotas that an entity can have, with their largest values.

    Raises KafkaError INVALID_REQUEST for an impossible entity; follows
    `ClientQuotaControlManager.configKeysForEntityType`.
    """
    if not entity:
        raise _invalid("an entity must have at least one type")
    for entity_type, name in entity.items():
        if entity_type not in ENTITY_TYPES:
            raise _invalid(f"there is no entity type {entity_type}")
        if name == "":
            raise _invalid(f"the name of a {entity_type} must not be empty")
    if IP not in entity:
        return _USER_AND_CLIENT_KEYS
    if len(entity) > 1:
        raise _invalid("ip cannot be combined with another entity type")
    address = entity[IP]
    try:
        if address is not None:
            ipaddress.ip_address(address)
    except ValueError:
        raise _invalid(f"{address} is not an address") from None
    return _IP_KEYS


def check_value(keys: dict[str, float | None], key: str, value: float) -> None:
    """Raise KafkaError(INVALID_REQUEST) for a bad key or value; as
    `ClientQuotaControlManager.validateQuotaKeyValue`.
    """
    if key not in keys:
        raise _invalid(f"an entity of this type has no quota {key}")
    if not 0 < value < math.inf:
        raise _invalid(f"{key} must be a number above 0")
    largest = keys[key]
    if largest is None:
        return
    if value > largest:
        raise _invalid(f"{key} must be at most {largest:.0f}")
    if value % 1.0 > _WHOLE_ENOUGH:
        raise _invalid(f"{key} must be a whole number")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
