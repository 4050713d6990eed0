"""Functions that read arguments of a request, from its query or its body. Each raises ConsoleError for a wrong one."""

from __future__ import annotations

from typing import Final

from klamm_console.arguments import MOST_OFFSET, text
from klamm_console.console_errors import ConsoleError
from klamm_console.routes import Question

LONGEST_NAME: Final = 4096


def text_of(question: Question, name: str) -> str:
    """Return a text field of the body. Raises ConsoleError."""
    try:
        return text(question.body, name, LONGEST_NAME)
    except ValueError as error:
        raise ConsoleError(400, f"{name} must be a text") from error


def number_of(question: Question, name: str, default: int, most: int = MOST_OFFSET) -> int:
    """Return a number from the query, which may be -1 to `most`. Raises ConsoleError."""
    given = question.query.get(name, "") or str(default)
    try:
        # An offset or a time has fewer digits.
        found = int(given) if len(given) < 20 else most + 1
    except ValueError:
        found = most + 1
    if not -1 <= found <= most:
        raise ConsoleError(400, f"{name} must be a number up to {most}")
    return found


def name_of(question: Question) -> str:
    """Return the name in the query. Only a group's name may be empty. Raises ConsoleError."""
    name = question.query.get("name")
    if name is None or not _is_unicode(name):
        raise ConsoleError(400, "the query needs a name")
    return name


def key_of(question: Question) -> str:
    """Return the key in the query; an empty text without one. Raises ConsoleError."""
    key = question.query.get("key", "")
    if not _is_unicode(key):
        raise ConsoleError(400, "key must be a text")
    return key


def _is_unicode(given: str) -> bool:
    """Return False for a text with half of a surrogate pair, which cannot be encoded in a request."""
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True
