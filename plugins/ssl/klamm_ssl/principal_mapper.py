"""`SslPrincipalMapper`: maps subjects of client certificates to names of principals, like Kafka's class (KIP-371).

The transport `ssl` calls it for each client with a certificate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from klamm.shared import JavaRegexError, compile_java, java_replacement

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER: Final = re.compile(_RULE)


class InvalidRuleError(ValueError):
    """Raised for a rule that does not match the grammar."""


class NoMatchingRuleError(Exception):
    """Raised if no rule applies to a name, like Kafka's `NoMatchingRule`."""


class SslPrincipalMapper:
    """Rules `DEFAULT` and `RULE:pattern/replacement/[LU]`, joined by commas. The first rule that applies is used.

    A pattern is a regular expression in Java's syntax that must match the whole name. In the replacement, `$1` stands
    for the first group of the pattern; a number without a group is kept as text. `L` and `U` change the case. Raises
    InvalidRuleError.
    """

    def __init__(self, rules: str) -> None:
        self._rules = [_compile(rule) for rule in _split(rules)]

    def name(self, distinguished_name: str) -> str:
        """Return the principal's name. Raises NoMatchingRuleError."""
        for rule in self._rules:
            name = rule(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRuleError(f"no rule of principal_mapping_rules applies to {distinguished_name}")


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
        pattern = compile_java(source)
        replace = java_replacement(replacement, pattern, keep_unknown=True)
    except JavaRegexError as error:
        raise InvalidRuleError(str(error)) from error
    change_case: Callable[[str], str] = {"L": str.lower, "U": str.upper}.get(case, str)

    def apply(name: str) -> str | None:
        if pattern.fullmatch(name) is None:
            return None
        return change_case(replace(name))

    return apply
