"""`prefixed`: puts the tenant's prefix in front of a regular expression. `Tenant` calls it."""

from __future__ import annotations

import re
from typing import Final

from klamm import ErrorCode, KafkaError
from klamm.shared import compile_re2

_GROUP: Final = re.compile(r"\((?:\?(?:P?<[^>]*>|[a-zA-Z-]*:))?")
_FLAGS: Final = re.compile(r"\(\?[a-zA-Z-]+\)")
_CLASS: Final = re.compile(r"\[\^?\]?")


def prefixed(pattern: str, escaped_prefix: str) -> str:
    r"""Return an expression that matches a whole name: the prefix, and then a match of the pattern.

    Raises KafkaError(INVALID_REGULAR_EXPRESSION) for a pattern that RE2 does not accept, and for a pattern that would
    change its meaning after a prefix: one with `^` except at the beginning of a name, with `\A`, or with quotes (`\Q`,
    `\E`).
    """
    own = _without_anchors(pattern)
    # Check the pattern alone, because with a `)` too many it could close the group that encloses it below.
    try:
        compile_re2(own)
    except ValueError:
        raise _refused("The regular expression is not valid for RE2, or takes too long.") from None
    return f"{escaped_prefix}(?:{own})"


def _without_anchors(pattern: str) -> str:
    """Return the pattern without the `^` at the beginning of a name. A whole name must match anyway."""
    kept: list[str] = []
    # True if this position can only be the beginning of a name, also with regard to the enclosing groups. it.
    leading, groups = True, [True]
    position = 0
    while position < len(pattern):
        piece = _piece(pattern, position)
        position += len(piece)
        if piece == "^":
            if not leading:
                raise _refused("On this listener an expression may have ^ only at the beginning of a name.")
            continue
        kept.append(piece)
        if _FLAGS.fullmatch(piece):
            continue
        if piece[0] == "(":
            groups.append(leading)
        elif piece == "|":
            leading = groups[-1]
        else:
            leading = False
            if piece == ")" and len(groups) > 1:
                groups.pop()
    return "".join(kept)


def _piece(pattern: str, position: int) -> str:
    """Return the next piece: a character, an escape, the beginning of a group, flags, or a class."""
    character = pattern[position]
    if character == "\\":
        piece = pattern[position : position + 2]
        if piece[1:] in ("Q", "E", "A"):
            raise _refused(f"On this listener an expression must not contain {piece}.")
        return piece
    if character == "(":
        found = _FLAGS.match(pattern, position) or _GROUP.match(pattern, position)
        return found[0] if found is not None else character
    if character == "[":
        return pattern[position : _end_of_class(pattern, position)]
    return character


def _end_of_class(pattern: str, position: int) -> int:
    begin = _CLASS.match(pattern, position)
    end = begin.end() if begin is not None else position + 1
    while end < len(pattern) and pattern[end] != "]":
        if pattern[end : end + 2] == "[:":
            # A class inside the class, e.g. [[:alpha:]].
            closed = pattern.find(":]", end + 2)
            end = closed + 2 if closed >= 0 else end + 1
            continue
        if pattern[end : end + 2] in ("\\Q", "\\E"):
            raise _refused("On this listener an expression must not contain quotes.")
        end += 2 if pattern[end] == "\\" else 1
    return end + 1


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
