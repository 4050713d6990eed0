"""The text of `klamm/wire/api_keys.py`."""

from __future__ import annotations

from tools.messages.module import HEAD


def render_api_keys(members: str, specs: str) -> str:
    return (
        HEAD.format(doc="Every API key, with its versions, known without importing a message module.")
        + f'''import enum
import importlib
from typing import Any, Final, NamedTuple


class ApiKey(enum.IntEnum):
    """Kafka's `ApiKeys`."""

{members}


class ApiSpec(NamedTuple):
    """One API.

    Apache Kafka 4.4.0 offers `min_version` to `max_version`. klamm reads and writes `earliest_version` to
    `latest_version`: also older ones that 3.9.1 has, if 4.4.0 has all their fields, and newer ones that are not
    stable yet.
    """

    api_key: int
    name: str
    module: str
    min_version: int
    max_version: int
    earliest_version: int
    latest_version: int
    flexible_from: int


SPECS: Final = (
{specs}
)
_BY_KEY: Final = {{spec.api_key: spec for spec in SPECS}}


def spec_of(api_key: int) -> ApiSpec:
    """Raises KeyError for an unknown key."""
    return _BY_KEY[api_key]


def find_spec(api_key: int) -> ApiSpec | None:
    """None for an unknown key."""
    return _BY_KEY.get(api_key)


def load(api_key: int) -> Any:
    """The message module of an API, imported at the first call. Raises KeyError for an unknown key."""
    return importlib.import_module(f"klamm.wire.messages.{{_BY_KEY[api_key].module}}")
'''
    )
