"""Rules for topic names, as in Kafka's class `Topic`."""

from __future__ import annotations

import re
from typing import Final

from klamm import ErrorCode, KafkaError

MAX_LENGTH: Final = 249
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise KafkaError(INVALID_TOPIC_EXCEPTION) for an invalid topic name."""
    problem = None
    if not name:
        problem = "a topic name must not be empty"
    elif name in (".", ".."):
        problem = f"{name} is not a valid topic name"
    elif len(name) > MAX_LENGTH:
        problem = f"a topic name of {len(name)} characters is longer than {MAX_LENGTH}"
    elif not _LEGAL.fullmatch(name):
        problem = f"topic name {name!r}: only ASCII letters, digits, '.', '_' and '-' are allowed"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def is_topic_name(name: str) -> bool:
    """Return True if the name is a valid topic name."""
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def collision_key(name: str) -> str:
    """Return a key that is equal for names whose metrics would have the same names: only one of them may exist."""
    return name.replace(".", "_")
