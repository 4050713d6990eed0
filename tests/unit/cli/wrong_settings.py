"""Configurations with an invalid setting: each setting of klamm and its plugins, with each kind of invalid value.

Some values contradict the declaration of the setting, and some can only be checked by the part itself.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from klamm.api.provider import ProviderKind
from klamm.config.misplaced_keys import PART_KEYS
from klamm.config.plugin_registry import Found, PluginRegistry
from klamm.config.server_settings import ListenerSettings, PluginsSettings, ServerSettings
from klamm.config.setting import SettingSpec, specs_of

# Only klamm's own plugins are used, whatever else is installed.
REGISTRY = PluginRegistry(environment={"KLAMM_LOAD_PLUGINS": ""})
LISTENER = '[listeners.a]\nbind = "127.0.0.1:0"\n'
NEEDED: Mapping[str, Mapping[str, object]] = {
    "sasl": {"mechanisms": ["PLAIN"]},
    "OAUTHBEARER": {"unsecured_development_tokens": True},
    "file": {"path": "users"},
    "gateway": {"bootstrap": ["127.0.0.1:9"], "node_ports": "9193"},
    "audit": {"spool": "spool"},
    "deny_apis": {"deny": ["Fetch"]},
    "record_encryption": {"keys_file": "keys"},
    "topic_prefix": {"prefix": "a."},
}
"""Settings that a part requires, so that nothing else is invalid.

`ssl` has none, because its certificate would be a file.
"""
NO_FILES = ("no-such-file", "folder", "garbage", "empty", "text")
"""Values of a path that name a wrong kind of file. `make_files` creates these files."""


class Table(NamedTuple):
    """A table of settings: the lines that use it, its path, and its settings."""

    before: str
    path: tuple[str, ...]
    specs: Mapping[str, SettingSpec]
    needed: Mapping[str, object]

    @property
    def name(self) -> str:
        return ".".join(self.path)

    def text(self, values: Mapping[str, object]) -> str:
        """Return a file with these values."""
        path = ".".join(map(json.dumps, self.path))
        lines = [f"{json.dumps(key)} = {toml(value)}\n" for key, value in {**self.needed, **values}.items()]
        return f"{self.before}[{path}]\n{''.join(lines)}"


def tables() -> Iterator[Table]:
    """Return each table of klamm and its plugins."""
    yield Table(LISTENER, ("server",), specs_of(ServerSettings), {})
    yield Table(LISTENER, ("plugins",), specs_of(PluginsSettings), {})
    yield Table("", ("listeners", "a"), specs_of(ListenerSettings), {})
    for found in REGISTRY.all():
        settings = found.provider.load_settings()
        if settings is not None:
            before, path = _place(found)
            yield Table(before, path, specs_of(settings), NEEDED.get(found.provider.name, {}))


def _place(found: Found) -> tuple[str, tuple[str, ...]]:
    name, kind = found.provider.name, found.kind
    if kind is ProviderKind.API_SET:
        return f'{LISTENER}api_set = "{name}"\n', (name,)
    if kind is ProviderKind.EXTENSION:
        return f'[server]\nextensions = ["{name}"]\n{LISTENER}', (name,)
    if kind is ProviderKind.REQUEST_SCHEDULER:
        return f'[server]\nrequest_scheduler = "{name}"\n{LISTENER}', ("server", name)
    if kind is ProviderKind.SASL_MECHANISM:
        return f'{LISTENER}authenticator = "sasl"\nsasl.mechanisms = ["{name}"]\n', ("listeners", "a", "sasl", name)
    if kind is ProviderKind.CREDENTIAL_STORE:
        sasl = f'sasl.mechanisms = ["PLAIN"]\nsasl.credential_stores = ["{name}"]\n'
        return f'{LISTENER}authenticator = "sasl"\n{sasl}', ("listeners", "a", "sasl", name)
    return f"{LISTENER}{PART_KEYS[kind].format(name)}\n", ("listeners", "a", name)


def ruled_out(spec: SettingSpec) -> Iterator[tuple[str, object]]:
    """Yield invalid values that contradict the declaration of a setting, with their kind."""
    kind = the_kind(spec)
    origin = typing.get_origin(kind)
    if kind is bool:
        yield "type", 1
    elif kind in (int, float):
        yield "type", "three"
    elif kind in (str, Path):
        yield "type", 7
    elif kind is not Any:
        yield "type", "x"
    if origin is tuple:
        yield "item", ["x", {}]
    elif origin is dict and typing.get_args(kind)[1] is not Any:
        yield "item", {"x": []}
    if spec.choices:
        yield "choice", "no-such-choice"
    if spec.minimum is not None:
        yield "low", int(spec.minimum) - 1
    if spec.maximum is not None:
        yield "high", int(spec.maximum) + 1


def for_the_part_to_judge(spec: SettingSpec) -> Iterator[object]:
    """Yield values of the right type that the part may still refuse."""
    kind = the_kind(spec)
    origin = typing.get_origin(kind)
    if kind is Path:
        yield from NO_FILES
    elif kind is str:
        yield from ("", "no such %% {thing}")
    elif origin is tuple:
        yield from ([], ["no such %% {thing}"])
    elif origin is dict:
        of = typing.get_args(kind)[1]
        yield {"no such %% {thing}": {} if dataclasses.is_dataclass(of) else 1 if of in (int, float) else "x %%"}


def the_kind(spec: SettingSpec) -> Any:
    """Return the type of a setting. If the setting is optional, return the type of its value."""
    if typing.get_origin(spec.kind) in (typing.Union, types.UnionType):
        return next(one for one in typing.get_args(spec.kind) if one is not type(None))
    return spec.kind


def toml(value: object) -> str:
    """Return a value in the form of TOML."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {toml(one)}' for key, one in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value)


def make_files(folder: Path) -> None:
    """Create the files that `NO_FILES` and `NEEDED` name."""
    (folder / "folder").mkdir()
    (folder / "garbage").write_bytes(b"\xff\xfe\x00\x80 is no text\n")
    (folder / "empty").touch()
    (folder / "text").write_text("no such thing\n", encoding="utf-8")
    (folder / "users").touch(mode=0o600)
    (folder / "keys").write_text(f'current = "k"\n[keys]\nk = "{"A" * 43}="\n', encoding="utf-8")
