"""Functions that change configs of topics and ACLs, as the logged-in user, over Kafka's protocol.

Each raises KafkaError if the server refuses the change, and ValueError for a wrong argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

from klamm import ErrorCode, KafkaError
from klamm.acl import AclOperation, AclPermission, PatternType, ResourceType
from klamm.testing import Admin
from klamm.wire.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from klamm.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_console.cluster import check
from klamm_console.routes import Argument

_TOPIC_RESOURCE: Final = 2
_SET: Final = 0
_DELETE: Final = 1
_LONGEST: Final = 32_768
Word = TypeVar("Word", bound=IntEnum)


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise ValueError(f"{name} must be a text")
    # Half of a surrogate pair raises UnicodeEncodeError, which is a ValueError.
    value.encode()
    return value


def _word(body: Mapping[str, Any], name: str, words: type[Word]) -> Word:
    text = _text(body, name)
    found = words.__members__.get(text)
    if found is None or text in ("UNKNOWN", "ANY", "MATCH"):
        raise ValueError(f"{name} is not one of Kafka's words: {text[:100]}")
    return found


def alter_config(admin: Admin, body: Mapping[str, Any]) -> None:
    """Set a topic's config, or return it to its default if there is no value."""
    value = None if body.get("value") is None else _text(body, "value")
    change = AlterableConfig(_text(body, "config"), _DELETE if value is None else _SET, value)
    resource = AlterConfigsResource(_TOPIC_RESOURCE, _text(body, "name"), [change])
    (answer,) = admin.call(IncrementalAlterConfigsRequest([resource]), 1).responses
    check(answer.error_code, answer.error_message)


def _rule(body: Mapping[str, Any]) -> tuple[ResourceType, str, PatternType, str, str, AclOperation, AclPermission]:
    return (
        _word(body, "resource", ResourceType),
        _text(body, "name"),
        _word(body, "pattern", PatternType),
        _text(body, "principal"),
        _text(body, "host"),
        _word(body, "operation", AclOperation),
        _word(body, "permission", AclPermission),
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
ACTIONS: Final[tuple[tuple[str, str, Callable[[Admin, Mapping[str, Any]], None], tuple[Argument, ...]], ...]] = (
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
    ("create_acl", "Create an ACL.", create_acl, _RULE),
    ("delete_acl", "Delete an ACL.", delete_acl, _RULE),
)
"""The name, the summary, the function and the arguments of each action."""
