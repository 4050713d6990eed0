"""Renders the text of `klamm/wire/api_keys.py`."""

from __future__ import annotations

from tools.messages.module import HEAD


def render_api_keys(members: str, specs: str) -> str:
    return (
        HEAD.format(doc="The API keys and their versions, which are known without an import of message modules.")
        + f'''import enum
import importlib
from typing import Any, Final, NamedTuple


class ApiKey(enum.IntEnum):
    """Kafka's `ApiKeys`."""

{members}


class ApiSpec(NamedTuple):
    """One API and its versions.

    Apache Kafka 4.4.0 offers `min_version` to `max_version`. klamm reads and writes `earliest_version` to
    `latest_version`. These include versions that are not stable yet, and older versions of Apache Kafka 3.9.1 if 4.4.0
    has all of their fields.
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
    """Return an API by its key. Raises KeyError for an unknown key."""
    return _BY_KEY[api_key]


def find_spec(api_key: int) -> ApiSpec | None:
    """Return an API by its key; None for an unknown key."""
    return _BY_KEY.get(api_key)


def load(api_key: int) -> Any:
    """Return the message module of an API, which the first call imports. Raises KeyError for an unknown key."""
    return importlib.import_module(f"klamm.wire.messages.{{_BY_KEY[api_key].module}}")
'''
    )
