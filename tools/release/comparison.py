"""Differences between klamm and a release, and a check if the documentation explains them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.errors import ErrorCode
from klamm.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm_broker.configs.topic_config import ConfigType
from klamm_broker.features import SUPPORTED
from tools.messages.descriptions import committed
from tools.release.bounds import unlike
from tools.release.facts import Facts, latest_and_fields

ROOT: Final = Path(__file__).resolve().parents[2]
RECORDED: Final = Path(__file__).resolve().parent / "recorded.json"
"""Facts of the last release that cannot be compared with klamm itself. The next release is compared with them."""

_API_ROW: Final = re.compile(r"^\| (\d+) \| (\w+) \| (\S*) \| (\S*) \| (.*) \|$", re.MULTILINE)
_CODE: Final = re.compile(r"`([^`\n]+)`")
_KINDS: Final = {"topic": 2, "broker": 4, "group": 32}
_DEFAULT: Final = 5
_SHORTEST: Final = 3
"""A pattern has more characters than this beside its `*`. So no pattern explains everything."""


class Difference(NamedTuple):
    """One difference. If it `is_newer`, klamm has something that the release does not have yet."""

    what: str
    text: str
    is_newer: bool = False


def differences(facts: Facts) -> Iterator[Difference]:
    """Yield the facts that klamm lacks, that are different in klamm, and that klamm has beyond the release."""
    yield from _apis(facts)
    yield from _messages(facts)
    yield from _errors(facts)
    yield from _features(facts)
    yield from _configs(facts)
    yield from _bounds(facts)
    yield from _recorded(facts)


def explained(deviations: str, apis: str) -> Callable[[Difference], bool]:
    """Return a function that is true if the pages explain a difference.

    docs/apis.md explains an API in the last column of its row. docs/deviations.md explains every name that stands there
    as code; a `*` in a name stands for any text.
    """
    reasons = {name for _, name, _, _, reason in _API_ROW.findall(apis) if reason.strip()}
    names = [each for each in _CODE.findall(deviations) if len(each.replace("*", "")) > _SHORTEST]
    exact = {each for each in names if "*" not in each}
    patterns = [each for each in names if "*" in each]

    def is_explained(difference: Difference) -> bool:
        name = difference.what
        return name in reasons or name in exact or any(fnmatchcase(name, each) for each in patterns)

    return is_explained


def _apis(facts: Facts) -> Iterator[Difference]:
    ours = {name: klamm for _, name, klamm, _, _ in _API_ROW.findall((ROOT / "docs/apis.md").read_text("utf-8"))}
    for name, (key, oldest, latest) in facts.apis.items():
        theirs = str(oldest) if oldest == latest else f"{oldest}–{latest}"
        mine = ours.get(name, "")
        if mine != theirs:
            is_newer = mine.strip("—") != "" and int(mine.rpartition("–")[2]) > latest
            yield Difference(name, f"API {key} {name}: {theirs}, klamm has {mine or 'nothing'}", is_newer)
    for name in ours.keys() - facts.apis.keys():
        yield Difference(name, f"API {name}: klamm has {ours[name]}", is_newer=True)


def _messages(facts: Facts) -> Iterator[Difference]:
    ours = {name: latest_and_fields(raw) for name, raw in committed().items()}
    for name, (latest, fields) in facts.messages.items():
        if latest < 0:
            continue
        known, known_fields = ours.get(name, (-1, frozenset()))
        for each in sorted(fields - known_fields):
            yield Difference(name, f"{name} has the field {each}", is_newer=known > latest)
        if known < latest:
            yield Difference(name, f"{name} has version {latest}, klamm knows {known}")
        elif known > latest:
            yield Difference(name, f"{name} has version {latest}, klamm knows {known}", is_newer=True)


def _errors(facts: Facts) -> Iterator[Difference]:
    ours = {code.name: int(code) for code in ErrorCode}
    for name in sorted(facts.errors.keys() | ours.keys()):
        theirs, mine = facts.errors.get(name), ours.get(name)
        if theirs != mine:
            yield Difference(name, f"error {name}: {theirs}, klamm has {mine}", is_newer=theirs is None)


def _features(facts: Facts) -> Iterator[Difference]:
    ours = {each.name: (each.min_version, each.max_version, each.level) for each in SUPPORTED}
    for name, theirs in facts.features.items():
        mine = ours.get(name)
        if mine != theirs:
            is_newer = mine is not None and mine[1] > theirs[1]
            yield Difference(name, f"feature {name}: lowest, highest, default {theirs}, klamm has {mine}", is_newer)


def _configs(facts: Facts) -> Iterator[Difference]:
    ours = described()
    for name, (kind, default, _) in facts.configs.items():
        key = name.partition(":")[2]
        mine = ours.get(name)
        if mine is None:
            yield Difference(key, f"config {name} ({kind}, {default}): klamm has none")
        elif mine != (kind, default if default != "null" else ""):
            yield Difference(key, f"config {name}: {kind}, {default}, klamm has {', '.join(mine)}")
    for name in ours.keys() - facts.configs.keys():
        yield Difference(name.partition(":")[2], f"config {name}: klamm has it", is_newer=True)


def _bounds(facts: Facts) -> Iterator[Difference]:
    for name, text in unlike({name: validator for name, (_, _, validator) in facts.configs.items()}):
        yield Difference(name.partition(":")[2], f"numbers of {name}: {text}")


def described() -> dict[str, tuple[str, str]]:
    """Return the type and the default of each config that a broker describes, by kind and name."""
    found = {}
    with EmbeddedServer() as server, RawClient(server.address()) as client:
        names = {"topic": server.create_topic(), "broker": str(server.api_set().node_id), "group": "g"}
        for kind, number in _KINDS.items():
            request = DescribeConfigsRequest([DescribeConfigsResource(number, names[kind])], include_synonyms=True)
            for each in client.call(request, 4).results[0].configs:
                defaults = [one.value for one in each.synonyms if one.source == _DEFAULT]
                # Nothing is set for a topic or a group here, and their synonyms are the broker's.
                default = each.value if kind != "broker" else defaults[0] if defaults else None
                found[f"{kind}:{each.name}"] = ConfigType(each.config_type).name, default or ""
    return found


def record(facts: Facts, version: str) -> None:
    """Write facts of a release into `RECORDED`. A person has checked the differences before."""
    validators = {name: validator for name, (_, _, validator) in sorted(facts.configs.items()) if validator != "null"}
    value = {"release": version, "metrics": facts.metrics, "rights": facts.rights, "validators": validators}
    RECORDED.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _recorded(facts: Facts) -> Iterator[Difference]:
    before: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))
    release = before["release"]
    for name in sorted({*facts.metrics} - {*before["metrics"]}):
        yield Difference(name, f"metric {name} was not in {release}")
    for name in sorted({*before["metrics"]} - {*facts.metrics}):
        yield Difference(name, f"metric {name} was in {release}", is_newer=True)
    yield from _changes("rights of", facts.rights, before["rights"], release)
    validators = {name: validator for name, (_, _, validator) in facts.configs.items() if validator != "null"}
    yield from _changes("validator of", validators, before["validators"], release)


def _changes(what: str, now: Mapping[str, Any], before: Mapping[str, Any], release: str) -> Iterator[Difference]:
    for name in sorted(now.keys() | before.keys()):
        if now.get(name) != before.get(name):
            key = name.rpartition(":")[2]
            text = f"{what} {name}: {now.get(name)}, in {release} {before.get(name)}"
            yield Difference(key, text, is_newer=name not in now)
