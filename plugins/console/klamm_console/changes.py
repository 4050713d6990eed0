"""Functions that change configs of topics, quotas and ACLs, as the logged-in user, over Kafka's protocol.

Each raises KafkaError if the server refuses the change, and ValueError for a wrong argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm import ErrorCode, KafkaError
from klamm.acl import AclOperation, AclPermission, PatternType, ResourceType
from klamm.testing import Admin
from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from klamm.wire.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from klamm.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_console.arguments import text, word
from klamm_console.cluster import check
from klamm_console.routes import Action, Argument

_TOPIC_RESOURCE: Final = 2
_SET: Final = 0
_DELETE: Final = 1
_MOST_QUOTA: Final = 1e300
_ENTITIES: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}


def alter_config(admin: Admin, body: Mapping[str, Any]) -> None:
    """Set a topic's config, or return it to its default if there is no value."""
    value = None if body.get("value") is None else text(body, "value")
    change = AlterableConfig(text(body, "config"), _DELETE if value is None else _SET, value)
    resource = AlterConfigsResource(_TOPIC_RESOURCE, text(body, "name"), [change])
    (answer,) = admin.call(IncrementalAlterConfigsRequest([resource]), 1).responses
    check(answer.error_code, answer.error_message)


def alter_quota(admin: Admin, body: Mapping[str, Any]) -> None:
    """Set a quota of an entity, or remove it if there is no value. An entity's name that is null is the default."""
    entity = [
        RequestEntityData(kind, None if body[name] is None else text(body, name))
        for name, kind in _ENTITIES.items()
        if name in body
    ]
    value = body.get("value")
    if value is not None and (type(value) not in (int, float) or not abs(value) <= _MOST_QUOTA):
        raise ValueError("value must be a number")
    change = OpData(text(body, "key"), float(value or 0), remove=value is None)
    (answer,) = admin.call(AlterClientQuotasRequest([RequestEntryData(entity, [change])]), 1).entries
    check(answer.error_code, answer.error_message)


def _rule(body: Mapping[str, Any]) -> tuple[ResourceType, str, PatternType, str, str, AclOperation, AclPermission]:
    return (
        word(body, "resource", ResourceType),
        text(body, "name"),
        word(body, "pattern", PatternType),
        text(body, "principal"),
        text(body, "host"),
        word(body, "operation", AclOperation),
        word(body, "permission", AclPermission),
    )


def create_acl(admin: Admin, body: Mapping[str, Any]) -> None:
    """Create an ACL."""
    (answer,) = admin.call(CreateAclsRequest([AclCreation(*_rule(body))]), 3).results
    check(answer.error_code, answer.error_message)


def delete_acl(admin: Admin, body: Mapping[str, Any]) -> None:
    """Delete an ACL. Raises KafkaError if there is none."""
    (answer,) = admin.call(DeleteAclsRequest([DeleteAclsFilter(*_rule(body))]), 3).filter_results
    check(answer.error_code, answer.error_message)
    if not answer.matching_acls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "there is no such ACL")
    for each in answer.matching_acls:
        check(each.error_code, each.error_message)


_RULE: Final = (
    Argument("resource", "E.g. `TOPIC`."),
    Argument("name", "The resource's name, or its beginning."),
    Argument("pattern", "`LITERAL` or `PREFIXED`."),
    Argument("principal", "E.g. `User:alice`."),
    Argument("host", "The client's address; `*` is any."),
    Argument("operation", "E.g. `READ`."),
    Argument("permission", "`ALLOW` or `DENY`."),
)
ACTIONS: Final[tuple[Action, ...]] = (
    (
        "alter_config",
        "Set a config of a topic, or return it to its default.",
        alter_config,
        (
            Argument("name", "The topic's name."),
            Argument("config", "E.g. `retention.ms`."),
            Argument("value", "Its value; without one, its default applies again.", required=False),
        ),
    ),
    (
        "alter_quota",
        "Set a quota of a user, a client id, both together, or an address, or remove it.",
        alter_quota,
        (
            Argument("key", "E.g. `producer_byte_rate`."),
            Argument("value", "Its value; without one, the quota is removed.", "number", required=False),
            Argument("user", "The user's name; null is the default.", required=False, may_be_null=True),
            Argument("client_id", "The client id; null is the default.", required=False, may_be_null=True),
            Argument("ip", "The address; null is the default.", required=False, may_be_null=True),
        ),
    ),
    ("create_acl", "Create an ACL.", create_acl, _RULE),
    ("delete_acl", "Delete an ACL.", delete_acl, _RULE),
)
