"""Which topic names are allowed: the rules of Kafka's `Topic` class."""

from __future__ import annotations

import re
from typing import Final

from klamm import ErrorCode, KafkaError

MAX_LENGTH: Final = 249
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
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
        problem = f"topic name {name!r}: only ASCII letters, digits, '.', '_' and '-' may be in it"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def is_topic_name(name: str) -> bool:
    """Whether the name is a valid topic name."""
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def collision_key(name: str) -> str:
    """Names with the same key would have the same metric names, so only one of them may exist."""
    return name.replace(".", "_")
