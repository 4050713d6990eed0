"""A registry with klamm's light plugins and one plugin for these tests, independent of installed packages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import klamm_dispatch
import klamm_echo
import klamm_plaintext
import klamm_quotas
from klamm import ConfigError, Provider, hookimpl, setting
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of the invented handler set `topics`: one setting of each type."""

    num_partitions: int = setting(1, name="num.partitions", minimum=1, maximum=10, doc="How many.")
    retention_ms: int | None = setting(None, name="log.retention.ms", doc="How long.")
    ratio: float = setting(0.5, minimum=0, maximum=1, doc="A share.")
    enabled: bool = setting(True, name="delete.topic.enable", doc="Whether.")
    codec: str = setting("none", choices=("none", "gzip"), doc="Which.")
    policies: tuple[str, ...] = setting(("delete",), name="log.cleanup.policy", doc="Some.")
    certificate: Path | None = setting(None, doc="A file.")
    limits: dict[str, int] = setting({}, doc="By name.")
    segment_bytes: int = setting(2**30, name="log.segment.bytes", minimum=2**20, doc="How large.")
    rack: str | None = setting(
        None, name="broker.rack", check=lambda rack: "must not be blank" if rack == "" else None, doc="Where."
    )


@dataclass(frozen=True, slots=True)
class NeedySettings:
    """Settings of a gate with a required key."""

    secret: str = setting(doc="There is no default for it.")


@dataclass(frozen=True, slots=True)
class KeeperSettings:
    """Settings of a gate that names a file."""

    list: str = setting(doc="A file.")
    rest_interval_ms: int = setting(2, name="rest.interval.ms", doc="How long.")

    def problems(self):
        1 / len(self.list)
        yield "list", f"{self.list}: No such file or directory"
        yield "rest.interval.ms", "is odd"
        yield "", "has a lock and no key"


class NoDataclass:
    """Settings of a gate whose author did not make a dataclass."""


@dataclass(frozen=True, slots=True)
class PlainField:
    """Settings of a gate whose author used a plain field."""

    limit: int = 3


@dataclass(frozen=True, slots=True)
class WrongDefault:
    limit: int = setting("three", doc="A number.")


@dataclass(frozen=True, slots=True)
class UnknownType:
    limits: list[int] = setting([], doc="Numbers.")


@dataclass(frozen=True, slots=True)
class RenamedSettings:
    """Settings of a gate with a renamed key."""

    limit: int = setting(1, doc="How many.")
    limits: int | None = setting(None, doc="The same.", deprecated="use limit")


@dataclass(frozen=True, slots=True)
class LanesSettings:
    """Settings of a request scheduler."""

    lanes: int = setting(2, doc="How many.")


class MadeUpPlugin:
    """A plugin whose parts are never built."""

    @hookimpl
    def klamm_api_sets(self):
        yield Provider("topics", "nowhere:Topics", settings=TopicSettings)

    @hookimpl
    def klamm_connection_gates(self):
        yield Provider("needy", "nowhere:Needy", settings=NeedySettings)
        yield Provider("keeper", "nowhere:Keeper", settings=KeeperSettings)
        yield Provider("no_dataclass", "nowhere:X", settings=NoDataclass)
        yield Provider("plain_field", "nowhere:X", settings=PlainField)
        yield Provider("wrong_default", "nowhere:X", settings=WrongDefault)
        yield Provider("unknown_type", "nowhere:X", settings=UnknownType)
        yield Provider("renamed", "nowhere:X", settings=RenamedSettings)
        yield Provider("lost", "nowhere:Lost", settings="nowhere:LostSettings")

    @hookimpl
    def klamm_request_schedulers(self):
        yield Provider("lanes", "nowhere:Lanes", settings=LanesSettings)


@pytest.fixture
def plugins():
    registry = PluginRegistry(entry_points=())
    for module in (klamm_plaintext, klamm_dispatch, klamm_quotas, klamm_echo):
        registry.add(module, module.__name__)
    registry.add(MadeUpPlugin(), "made-up")
    return registry


@pytest.fixture
def load(tmp_path, plugins):
    """Return `load(text, "key=value", …)`, which returns the plan. Without a text there is no file."""

    def load_text(text, *overrides, **options):
        file = None
        if text is not None:
            file = tmp_path / "klamm.toml"
            file.write_text(text, encoding="utf-8")
        return load_plan(file, plugins, overrides, **options)

    return load_text


@pytest.fixture
def problems(load, tmp_path):
    """Return `problems(text, …)`, which returns the problems that `load` reports, one a line. Paths are relative."""

    def load_wrong(text, *overrides, **options):
        with pytest.raises(ConfigError) as caught:
            load(text, *overrides, **options)
        return [str(problem).replace(f"{tmp_path}/", "") for problem in caught.value.problems]

    return load_wrong
