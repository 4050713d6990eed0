"""Tests of `tools/kafka_diff` without jars: the differences that it finds, and those that the pages explain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from klamm.wire import releases
from klamm.wire.api_keys import spec_of
from klamm.wire.errors import ErrorCode
from klamm.wire.releases import RELEASES
from klamm_broker.features import SUPPORTED
from tools.generate_releases import render
from tools.messages.descriptions import committed
from tools.release.bounds import Bounds, of_klamm, of_validator, unlike
from tools.release.comparison import RECORDED, Difference, described, differences, explained
from tools.release.facts import Facts, constants, latest_and_fields

DEVIATIONS = (
    "`retention.ms` is otherwise; `remote.log.*` and `*.purgatory.interval` are not there; `*` and `a*` say nothing."
)
APIS = "| 64 | UnregisterBroker | — | 0 | there is no other broker |\n| 18 | ApiVersions | 0–5 | 0–5 |  |\n"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("retention.ms", True),
        ("retention.bytes", False),
        ("remote.log.reader.threads", True),
        ("x.remote.log.reader", False),
        ("fetch.purgatory.interval", True),
        ("auto.create", False),
        ("UnregisterBroker", True),
        ("ApiVersions", False),
    ],
)
def test_differences_that_the_pages_name_are_explained(name: str, expected: bool) -> None:
    assert explained(DEVIATIONS, APIS)(Difference(name, "")) is expected


def own_facts() -> Facts:
    """Return the facts of a release that equals klamm."""
    recorded = json.loads(RECORDED.read_text("utf-8"))
    facts = Facts(metrics=recorded["metrics"], rights=recorded["rights"])
    facts.apis = {spec_of(key).name: (key, *each) for key, each in RELEASES["4.4"].items()}
    facts.messages = {name: latest_and_fields(raw) for name, raw in committed().items()}
    facts.errors = {code.name: int(code) for code in ErrorCode}
    facts.features = {each.name: (each.min_version, each.max_version, each.level) for each in SUPPORTED}
    validators = recorded["validators"]
    facts.configs = {name: (*each, validators.get(name, "null")) for name, each in described().items()}
    for name, validator in validators.items():
        facts.configs.setdefault(name, ("STRING", "", validator))
    return facts


def found(facts: Facts) -> set[str]:
    return {each.text for each in differences(facts) if not each.is_newer}


def test_each_kind_of_difference_is_found() -> None:
    before = found(own_facts())
    facts = own_facts()
    key, oldest, latest = facts.apis["ApiVersions"]
    facts.apis |= {"ApiVersions": (key, oldest, latest + 1), "Novelty": (120, 0, 3)}
    version, fields = facts.messages["FetchRequest"]
    facts.messages["FetchRequest"] = version + 1, fields | {"Topics.Novelty int32"}
    facts.messages["NoveltyRequest"] = 0, frozenset()
    facts.errors["NOVELTY"] = 137
    facts.features |= {"novel.version": (0, 1, 1), "metadata.version": (7, 34, 34)}
    facts.configs |= {"topic:novel.ms": ("LONG", "5", "null"), "topic:retention.ms": ("LONG", "7", "null")}
    facts.configs["topic:segment.ms"] = ("LONG", "604800000", "[7,...]")
    facts.metrics = [*facts.metrics, "NovelPerSec"]
    facts.rights = {**facts.rights, "Produce": ["ALTER", "TOPIC"]}
    new = "\n".join(sorted(found(facts) - before))
    for expected in (
        f"API 18 ApiVersions: 0–{latest + 1}, klamm has 0–{latest}",
        "API 120 Novelty: 0–3, klamm has nothing",
        "FetchRequest has the field Topics.Novelty int32",
        f"FetchRequest has version {version + 1}, klamm knows {version}",
        "NoveltyRequest has version 0, klamm knows -1",
        "error NOVELTY: 137, klamm has None",
        "feature novel.version: lowest, highest, default (0, 1, 1), klamm has None",
        "feature metadata.version: lowest, highest, default (7, 34, 34)",
        "config topic:novel.ms (LONG, 5): klamm has none",
        "config topic:retention.ms: LONG, 7, klamm has LONG, 604800000",
        "validator of topic:segment.ms: [7,...]",
        "numbers of topic:segment.ms: at least 7, klamm takes at least 1",
        "metric NovelPerSec was not in",
        "rights of Produce: ['ALTER', 'TOPIC']",
    ):
        assert expected in new
    assert len(new.splitlines()) == 14


@pytest.mark.parametrize(
    ("validator", "expected"),
    [
        ("[1,...]", Bounds(1, None)),
        ("[-131072,...,22]", Bounds(-131072, 22)),
        ("[1,...,9] or -1", Bounds(-1, 9)),
        ("[0,...,2147483647]", Bounds(0, None)),
        ("[compact, delete]", None),
        ("non-empty list", None),
    ],
)
def test_validators_of_numbers_are_read(validator: str, expected: Bounds | None) -> None:
    assert of_validator(validator) == expected


def test_configs_accept_kafkas_numbers_except_zeros_that_stop_the_server() -> None:
    validators = json.loads(RECORDED.read_text("utf-8"))["validators"]
    assert len({name for name in of_klamm() if of_validator(validators.get(name, "")) is not None}) > 100
    assert dict(unlike(validators)) == dict.fromkeys(
        (
            "broker:log.cleaner.backoff.ms",
            "broker:log.cleaner.threads",
            "broker:log.flush.offset.checkpoint.interval.ms",
            "broker:log.flush.start.offset.checkpoint.interval.ms",
            "broker:max.connection.creation.rate",
            "broker:max.connections",
        ),
        "at least 0, klamm takes at least 1",
    )


def test_additions_to_an_older_release_are_found() -> None:
    facts = own_facts()
    key, oldest, latest = facts.apis["ApiVersions"]
    facts.apis["ApiVersions"] = key, oldest, latest - 1
    del facts.errors["GROUP_DELETION_FAILED"]
    newer = {each.what for each in differences(facts) if each.is_newer}
    assert {"ApiVersions", "GROUP_DELETION_FAILED"} <= newer


def test_the_strings_of_a_class_are_read() -> None:
    """The constant pool has a long, which takes two places, the name of a method, and two strings."""
    entries = [
        b"\x01\x00\x06method",
        b"\x05" + bytes(8),
        b"\x01\x00\x05Bytes",
        b"\x08\x00\x04",
        b"\x01\x00\x01c",
        b"\x07\x00\x06",
    ]
    pool = (1 + len(entries) + 1).to_bytes(2, "big")
    assert list(constants(bytes(8) + pool + b"".join(entries))) == ["Bytes", "c"]


def test_the_table_of_releases_shows_all_changes() -> None:
    text = render({"1": {0: (0, 3), 1: (0, 1), 9: (2, 2)}, "2": {0: (0, 3), 1: (1, 2), 7: (0, 0)}})
    assert text.count("0: (0, 3)") == 1, "the second release has it unchanged"
    module: dict[str, object] = {}
    exec(text, module)
    assert module["RELEASES"] == {"1": {0: (0, 3), 1: (0, 1), 9: (2, 2)}, "2": {0: (0, 3), 1: (1, 2), 7: (0, 0)}}
    assert render(RELEASES) == Path(releases.__file__).read_text()
