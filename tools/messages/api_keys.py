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

    `min_version` to `max_version` is what Apache Kafka 4.3.1 offers; `earliest_version` to `latest_version` what can be
    read and written: older ones too where 3.9.1 had them and no field is gone, and newer ones that are not stable yet.
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
    """The message module of an API, imported now if it was not. Raises KeyError for an unknown key."""
    return importlib.import_module(f"klamm.wire.messages.{{_BY_KEY[api_key].module}}")
'''
    )
