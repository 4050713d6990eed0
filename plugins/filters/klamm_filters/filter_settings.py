"""The settings of the filters `deny_apis`, `client_limits` and `rewrite_client_id`."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from klamm import ErrorCode, setting
from klamm_filters.api_names import API_KEYS, check_apis

PLACEHOLDERS: Final = ("client_id", "principal", "listener", "host")
"""Placeholders in a template of `rewrite_client_id`."""

_NUMBERS: Final = re.compile(r"\d+(?:\.\d+)*")


def parse_version(text: str) -> tuple[int, ...] | None:
    """Return the numbers at the beginning of a version, without zeros at the end.

    Return None if the version does not begin with a number.
    """
    found = _NUMBERS.match(text)
    if found is None or len(found[0]) > 100:
        return None
    numbers = [int(one) for one in found[0].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _check_error(name: str) -> str | None:
    if name in ErrorCode.__members__ and ErrorCode[name] is not ErrorCode.NONE:
        return None
    return f'there is no error "{name}"'


def _check_versions(versions: Mapping[str, str]) -> str | None:
    wrong = [one for one in versions.values() if parse_version(one) is None]
    return f'"{wrong[0]}" is not a version such as 3.7 or 2.6.1' if wrong else None


def _check_api_versions(versions: Mapping[str, int]) -> str | None:
    unknown = [one for one in versions if one not in API_KEYS]
    if unknown:
        return f'filters get no API of the name "{unknown[0]}"'
    return "a version must be at least 0" if any(one < 0 for one in versions.values()) else None


def _check_template(template: str) -> str | None:
    try:
        names = [(name, spec, conversion) for _, name, spec, conversion in string.Formatter().parse(template)]
    except ValueError as error:
        return str(error)
    for name, spec, conversion in names:
        if name is not None and (name not in PLACEHOLDERS or spec or conversion):
            return f"{{{name}}} is not one of {', '.join(f'{{{one}}}' for one in PLACEHOLDERS)}"
    return None


@dataclass(frozen=True, slots=True)
class DenyApisSettings:
    """`[listeners.NAME.deny_apis]`."""

    deny: tuple[str, ...] = setting(
        (), doc="Names of APIs that are refused, or patterns, e.g. `AlterConfigs` or `Delete*`.", check=check_apis
    )
    allow: tuple[str, ...] = setting(
        (), doc="Names or patterns; if any are given, all other APIs are refused.", check=check_apis
    )
    except_principals: tuple[str, ...] = setting((), doc="Principals that may use all APIs, e.g. `User:admin`.")
    error: str = setting("POLICY_VIOLATION", doc="The error that clients get.", check=_check_error)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a problem if the filter denies no API, which must be a mistake."""
        if not self.deny and not self.allow:
            yield "", "name APIs in `deny` or in `allow`"


@dataclass(frozen=True, slots=True)
class ClientLimitsSettings:
    """`[listeners.NAME.client_limits]`."""

    software: tuple[str, ...] = setting(
        (),
        doc="Patterns of client software names (KIP-511), e.g. `apache-kafka-*`; if any are given, all others are "
        "refused.",
    )
    min_software_versions: dict[str, str] = setting(
        {},
        doc='Oldest version by name of client software, e.g. `apache-kafka-java = "3.7"`. If any are given, clients '
        "that send no software name, or a version that does not begin with a number, are refused.",
        check=_check_versions,
    )
    client_ids: tuple[str, ...] = setting(
        (), doc="Patterns of client ids, e.g. `billing-*`; if any are given, all others are refused."
    )
    min_api_versions: dict[str, int] = setting(
        {}, doc="Oldest version of requests by API, e.g. `Fetch = 12`.", check=_check_api_versions
    )
    apis: tuple[str, ...] = setting(
        ("*",),
        doc="Names or patterns of the APIs whose requests are checked. A gateway need not decode other APIs.",
        check=check_apis,
    )
    disconnect: bool = setting(False, doc="Close the connection instead of answering with POLICY_VIOLATION.")


@dataclass(frozen=True, slots=True)
class RewriteClientIdSettings:
    """`[listeners.NAME.rewrite_client_id]`."""

    template: str = setting(
        "{principal}.{client_id}",
        doc="The new client id; may contain {client_id}, {principal}, {listener} and {host}, the client's address.",
        check=_check_template,
    )
