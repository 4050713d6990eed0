"""`message`: Confluent's text for a difference between two JSON Schemas."""

from __future__ import annotations

import re
from typing import Final

_OPEN: Final = "has an open content model and has a property or item at path '{path}' which is missing in the"
_MESSAGES: Final = (
    (
        r"(MAX|MIN|EXCLUSIVE|MULTIPLE_OF|PATTERN|REQUIRED_ATTRIBUTE|DEPENDENCY|UNIQUE).*_ADDED|.*(ITEMS|PROPERTIES)_REMOVED",
        "The keyword at path '{path}' in the {reader} schema is not present in the {writer} schema",
    ),
    (
        r"MIN.*_INCREASED|EXCLUSIVE.*_INCREASED|MULTIPLE_OF_EXPANDED",
        "The value at path '{path}' in the {reader} schema is more than its value in the {writer} schema",
    ),
    (
        r"(MAX|EXCLUSIVE).*_DECREASED",
        "The value at path '{path}' in the {reader} schema is less than its value in the {writer} schema",
    ),
    (
        r"PATTERN_CHANGED|MULTIPLE_OF_CHANGED|DEPENDENCY_ARRAY_CHANGED",
        "The value at path '{path}' is different between the {reader} and {writer} schema",
    ),
    (
        r"TYPE_CHANGED|TYPE_NARROWED|COMBINED_.*|ENUM_ARRAY_CHANGED",
        "A type at path '{path}' is different between the {reader} schema and the {writer} schema",
    ),
    (
        r".*_NARROWED",
        "An array or combined type at path '{path}' has fewer elements in the {reader} schema than the {writer} schema",
    ),
    (
        r".*_EXTENDED",
        "An array or combined type at path '{path}' has more elements in the {reader} schema than the {writer} schema",
    ),
    (r".*_ADDED_TO_OPEN_CONTENT_MODEL", f"The {{reader}} schema {_OPEN} {{writer}} schema"),
    (
        r".*_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "The {reader} schema has an unopen content model and has a required property at path '{path}' which is missing"
        " in the {writer} schema",
    ),
    (
        r".*_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "The {reader} has a closed content model and is missing a property or item present at path '{path}' in the"
        " {writer} schema",
    ),
    (
        r".*_REMOVED_NOT_COVERED.*",
        "A property or item is missing in the {reader} schema but present at path '{path}' in the {writer} schema and"
        " is not covered by its partially open content model",
    ),
    (
        r".*_ADDED_NOT_COVERED.*",
        "The {reader} schema has a property or item at path '{path}' which is missing in the {writer} schema and is not"
        " covered by its partially open content model",
    ),
)


def message(kind: str, path: tuple[str, ...]) -> str:
    """Return the message for a difference. It contains `{reader}` and `{writer}`, which the caller replaces."""
    text = next((text for pattern, text in _MESSAGES if re.fullmatch(pattern, kind)), "")
    shown = "#/" + "/".join(path)
    return f'{{errorType:"{kind}", description:"{text.replace("{path}", shown)}\'}}'
