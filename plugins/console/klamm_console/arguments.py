"""Functions that read the arguments of an action. Each raises ValueError for a wrong one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

_LONGEST: Final = 32_768
MOST_OFFSET: Final = (1 << 63) - 1
MOST_PARTITION: Final = (1 << 31) - 1
Word = TypeVar("Word", bound=IntEnum)


def text(body: Mapping[str, Any], name: str, longest: int = _LONGEST) -> str:
    """Return a text."""
    value = body.get(name)
    if not isinstance(value, str) or len(value) > longest:
        raise ValueError(f"{name} must be a text")
    # Half of a surrogate pair raises UnicodeEncodeError, which is a ValueError.
    value.encode()
    return value


def number(body: Mapping[str, Any], name: str, most: int = MOST_OFFSET) -> int:
    """Return a number from 0 to `most`."""
    value = body.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} must be a number from 0 to {most}")
    return value


def word(body: Mapping[str, Any], name: str, words: type[Word]) -> Word:
    """Return one of Kafka's words."""
    found = words.__members__.get(text(body, name))
    if found is None or found.name in ("UNKNOWN", "ANY", "MATCH"):
        raise ValueError(f"{name} is not one of Kafka's words: {text(body, name)[:100]}")
    return found
