"""`SslPrincipalMapper`: names of principals from distinguished names, after Kafka's class of that name (KIP-371)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from klamm import in_one_line

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER: Final = re.compile(_RULE)
_REPLACEMENT_TOKEN: Final = re.compile(r"\\(.)|\$(\d+)|\$\{([A-Za-z][A-Za-z0-9]*)\}|([^\\$]+)|(.)", re.DOTALL)
_NAMED_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")


class InvalidRuleError(ValueError):
    """A rule that the grammar does not have."""


class NoMatchingRuleError(Exception):
    """No rule applies to a name. Kafka's `NoMatchingRule`."""


class SslPrincipalMapper:
    """`DEFAULT` and `RULE:pattern/replacement/[LU]`, joined by commas; the first that applies wins.

    A pattern is a regular expression that must match the whole name; in the replacement `$1` stands for its first
    group, a number beyond its groups for itself. `L` and `U` change the case. Raises InvalidRuleError.
    """

    def __init__(self, rules: str) -> None:
        self._rules = [_compile(rule) for rule in _split(rules)]

    def name(self, distinguished_name: str) -> str:
        """The principal's name. Raises NoMatchingRuleError."""
        for rule in self._rules:
            name = rule(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRuleError(f"no rule of principal_mapping_rules applies to {in_one_line(distinguished_name)}")


_Rule = Callable[[str], str | None]


def _split(rules: str) -> Iterator[re.Match[str]]:
    for found in _SPLITTER.finditer(rules.strip()):
        rule = found.group(1)
        parsed = _PARSER.match(rule)
        if parsed is None or parsed.end() != len(rule):
            raise InvalidRuleError(f'"{rule}" is neither DEFAULT nor RULE:pattern/replacement/[LU]')
        if rule:
            yield parsed


def _compile(rule: re.Match[str]) -> _Rule:
    default, source, replacement, case, _ = rule.groups()
    if default is not None:
        return lambda name: name
    try:
        # Java writes named groups without the P.
        pattern = re.compile(_NAMED_GROUP.sub("(?P<", source))
    except re.error as error:
        raise InvalidRuleError(f'"{source}" is no regular expression: {error}') from error
    expand = _replacement(replacement, pattern)
    change_case: Callable[[str], str] = {"L": str.lower, "U": str.upper}.get(case, str)

    def apply(name: str) -> str | None:
        if pattern.fullmatch(name) is None:
            return None
        return change_case(pattern.sub(expand, name))

    return apply


def _replacement(text: str, pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """What Java's `String.replaceAll` makes of a replacement: `$1`, `${name}`, and a backslash before any character."""
    parts: list[str | int] = []
    for token in _REPLACEMENT_TOKEN.finditer(text):
        escaped, number, group, literal, wrong = token.groups()
        if escaped is not None or literal is not None:
            parts.append(escaped or literal)
        elif number is not None:
            parts += _reference(number, pattern)
        elif group is not None and group in pattern.groupindex:
            parts.append(pattern.groupindex[group])
        else:
            raise InvalidRuleError(f'"{text}": {wrong or token.group()} stands for nothing')

    def expand(match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match.group(part) or "" for part in parts)

    return expand


def _reference(digits: str, pattern: re.Pattern[str]) -> list[str | int]:
    """As many digits as name a group; all of them as they are if none does."""
    if digits[0] == "0":
        return [0, digits[1:]]
    for end in range(len(digits), 0, -1):
        if int(digits[:end]) <= pattern.groups:
            return [int(digits[:end]), digits[end:]]
    if not pattern.groups:
        raise InvalidRuleError(f'"${digits}" refers to a group, and "{pattern.pattern}" has none')
    return [f"${digits}"]
