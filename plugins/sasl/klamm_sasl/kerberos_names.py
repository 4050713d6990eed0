"""`KerberosShortNamer`: translates Kerberos principals to user names, by `sasl.kerberos.principal.to.local.rules`.

The grammar and the meaning of the rules are those of Kafka's `KerberosShortNamer`, `KerberosRule` and `KerberosName`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.shared import JavaRegexError, compile_java, java_replacement

_RULE: Final = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<count>\d+):(?P<format>[^\]]*)\](\((?P<match>[^)]*)\))?"
    r"(s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_PARAMETER: Final = re.compile(r"\$(\d*)")


class NoMatchingRuleError(Exception):
    """Raised if no rule gives the principal a name, or if a rule gives it an invalid name."""


@dataclass(frozen=True, slots=True)
class KerberosRule:
    """One rule. `count` is None for DEFAULT."""

    text: str
    count: int | None
    format: str = ""
    match: re.Pattern[str] | None = None
    replace: Callable[[str], str] | None = None
    case: str = ""

    def apply(self, parameters: Sequence[str], default_realm: str) -> str | None:
        """Return the name, or None if the rule does not apply. `parameters` are the realm and the name's components."""
        if self.count is None:
            found = parameters[1] if parameters[0] == default_realm else None
        elif len(parameters) - 1 == self.count:
            found = self._translated(_PARAMETER.sub(lambda match: parameters[int(match[1])], self.format))
        else:
            found = None
        if found is None:
            return None
        if "/" in found or "@" in found:
            raise NoMatchingRuleError(f"{found!r} still contains / or @ after the rule {self.text}")
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found

    def _translated(self, base: str) -> str | None:
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        return base if self.replace is None else self.replace(base)


def parse_rule(text: str) -> KerberosRule:
    """Return the rule that a text describes. Raises ValueError."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text}" is not a rule such as "RULE:[1:$1@$0](.*@REALM)s/@.*//" or "DEFAULT"')
    if match["default"]:
        return KerberosRule(text, None)
    count = int(match["count"])
    for parameter in _PARAMETER.finditer(match["format"]):
        if not parameter[1] or int(parameter[1]) > count:
            raise ValueError(f'"{text}" names {parameter[0]}, but there are only $0 to ${count}')
    try:
        wanted = None if match["match"] is None else compile_java(match["match"])
        replace = None
        if match["pattern"] is not None:
            first_only = match["all"] is None
            replace = java_replacement(match["replacement"], compile_java(match["pattern"]), first_only=first_only)
    except JavaRegexError as error:
        raise ValueError(f'"{text}" has an invalid pattern: {error}') from error
    return KerberosRule(text, count, match["format"], wanted, replace, match["case"] or "")


class KerberosShortNamer:
    """A list of rules. The first rule that applies determines the name."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        self._rules = [parse_rule(rule) for rule in rules]
        self._default_realm = default_realm

    def short_name(self, principal: str) -> str:
        """Return the user's name. Raises NoMatchingRuleError."""
        match = _NAME.fullmatch(principal)
        if match is None:
            if "@" in principal or "/" in principal:
                raise NoMatchingRuleError(f"{principal!r} is not a Kerberos name of at most two components")
            return principal
        service, host, realm = match.groups()
        parameters = [realm, service] if host is None else [realm, service, host]
        for rule in self._rules:
            found = rule.apply(parameters, self._default_realm)
            if found is not None:
                return found
        raise NoMatchingRuleError(f"no rule applies to {principal!r}")
