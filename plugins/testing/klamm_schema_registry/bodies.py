"""Functions that read values of JSON bodies like Confluent's registry, which accepts a number as text and vice versa.

Each function raises TypeError or ValueError for any other value. None stands for a missing value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

INT_MAX: Final = (1 << 31) - 1
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}\Z")
_BOOLEANS: Final = {"true": True, "false": False}
_RULES: Final = ("migrationRules", "domainRules", "encodingRules")
_KINDS: Final = ("TRANSFORM", "CONDITION")
_MODES: Final = ("UPGRADE", "DOWNGRADE", "UPDOWN", "WRITE", "READ", "WRITEREAD")
_PLACES: Final = ("ALL", "CLIENT", "GATEWAY", "SERVER", "NONE")


def text(value: Any, name: str) -> str | None:
    """Return a text."""
    if isinstance(value, dict | list):
        raise TypeError(f"{name} must be a string")
    return value if value is None or isinstance(value, str) else json.dumps(value)


def number(value: Any, name: str) -> int | None:
    """Return a number of 32 bits. The digits after a decimal point are dropped."""
    if isinstance(value, str):
        value = value.strip()
        if not value:
            return None
        if not _NUMBER.match(value):
            raise ValueError(f"{name} must be a number")
    elif value is None:
        return None
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number")
    try:
        found = int(value)
    except OverflowError as error:
        raise ValueError(f"{name} must be finite") from error
    if not -INT_MAX - 1 <= found <= INT_MAX:
        raise ValueError(f"{name} must have 32 bits")
    return found


def boolean(value: Any, name: str) -> bool | None:
    """Return True or False. A number other than 0 is True."""
    if value is None or value == "":
        return None
    if isinstance(value, int):
        return bool(value)
    if not isinstance(value, str) or value.lower() not in _BOOLEANS:
        raise ValueError(f"{name} must be true or false")
    return _BOOLEANS[value.lower()]


def table(value: Any, name: str) -> Mapping[str, Any]:
    """Return an object; an empty one for None."""
    if not isinstance(value, dict | None):
        raise TypeError(f"{name} must be an object")
    return value or {}


def sequence(value: Any, name: str) -> Sequence[Any]:
    """Return an array; an empty one for None."""
    if not isinstance(value, list | None):
        raise TypeError(f"{name} must be an array")
    return value or ()


def metadata(value: Any) -> dict[str, Any]:
    """Return the metadata of a schema, without empty and unknown fields."""
    given = table(value, "metadata")
    tags = table(given.get("tags"), "tags")
    properties = _named_texts(given.get("properties"), "properties")
    if len(properties) < len(table(given.get("properties"), "properties")):
        raise ValueError("properties must have values")
    found = {
        "tags": {key: _texts(tags[key], f"tags.{key}") for key in sorted(tags)},
        "properties": properties,
        "sensitive": _texts(given.get("sensitive"), "sensitive"),
    }
    return {key: each for key, each in found.items() if each}


def rules(value: Any) -> dict[str, Any]:
    """Return the rules of a schema, with defaults for missing fields."""
    given = table(value, "ruleSet")
    found: dict[str, Any] = {}
    for key in _RULES:
        listed = [_rule(each, key) for each in sequence(given.get(key), key) if each is not None]
        if listed:
            found[key] = listed
    place = _choice(given.get("enableAt"), "enableAt", _PLACES)
    return {**found, "enableAt": place} if found and place else found


def _rule(value: Any, name: str) -> dict[str, Any]:
    given = table(value, name)
    words = ("name", "doc", "type", "expr", "onSuccess", "onFailure")
    found: dict[str, Any] = {key: text(given.get(key), f"{name}.{key}") for key in words}
    found["kind"] = _choice(given.get("kind"), f"{name}.kind", _KINDS) or "TRANSFORM"
    found["mode"] = _choice(given.get("mode"), f"{name}.mode", _MODES) or "WRITEREAD"
    found["tags"] = _texts(given.get("tags"), f"{name}.tags")
    found["params"] = _named_texts(given.get("params"), f"{name}.params")
    shown = {key: each for key, each in found.items() if each}
    return {**shown, "disabled": bool(boolean(given.get("disabled"), f"{name}.disabled"))}


def _texts(value: Any, name: str) -> list[str]:
    return sorted({found for each in sequence(value, name) if (found := text(each, name)) is not None})


def _named_texts(value: Any, name: str) -> dict[str, str]:
    given = table(value, name)
    return {key: found for key in sorted(given) if (found := text(given[key], f"{name}.{key}")) is not None}


def _choice(value: Any, name: str, choices: Sequence[str]) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(choices):
        return choices[value]
    if value in (None, "") or value in choices:
        return value or None
    raise ValueError(f"{name} must be one of {', '.join(choices)}")
