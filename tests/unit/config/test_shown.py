"""Settings are shown without secrets."""

import dataclasses
import json
import re
import typing
from dataclasses import dataclass

import pytest

from klamm import setting
from klamm.config.plugin_registry import PluginRegistry
from klamm.config.setting import specs_of
from klamm.config.shown import HIDDEN, is_secret, shown

# Texts, and tables of texts or of anything, that have no secrets.
NO_SECRETS = {
    "key_password_env": "names a variable of the environment",
    "trust_store_password_env": "names a variable of the environment",
    "delegation.token.secret.key.env": "names a variable of the environment",
    "keys_function": "names a function",
    "apis": "levels by API",
    "principals": "levels, or tenants, by principal",
    "readers": "public keys and filters of readers",
    "min_software_versions": "versions",
    "labels": "labels of metrics",
}


@dataclass(frozen=True, slots=True)
class Below:
    key_pem: str = setting("", doc="A key.", secret=True)
    size: int = setting(1, doc="A size.")


@dataclass(frozen=True, slots=True)
class Settings:
    declared: str = setting("", doc="A secret.", secret=True)
    table: dict[str, str] = setting({}, doc="A table of secrets.", secret=True)
    named_token: str | None = setting(None, doc="A secret of a plugin that does not declare it.")
    address: str = setting("", doc="A URL.")
    below: dict[str, Below] = setting({}, doc="Tables.")
    limit: float = setting(float("inf"), doc="A number.")
    names: tuple[str, ...] = setting((), doc="Names.")


def test_secrets_are_hidden_wherever_they_are():
    settings = Settings(
        "s3cret-1",
        {"a": "s3cret-2"},
        "s3cret-3",
        "https://alice:s3cret-4@example.org/x",
        {"host": Below("s3cret-5", 2)},
        names=("http://s3cret-6@example.org", "b"),
    )
    rows = {row["key"]: row["value"] for row in shown(settings)}
    assert "s3cret" not in json.dumps(rows)
    assert rows["address"] == f"https://{HIDDEN}@example.org/x"
    assert rows["below"] == {"host": {"key_pem": HIDDEN, "size": 2}}
    assert (rows["limit"], rows["names"][1]) == ("inf", "b")


@pytest.mark.parametrize(
    ("text", "shown_as"),
    [
        ("https://alice:s3cret@9@example.org/x", f"https://{HIDDEN}@example.org/x"),
        ("amqp://alice:s3/cret@example.org", f"amqp://{HIDDEN}@example.org"),
        ("https://example.org/x?key=s3cret", f"https://example.org/x?{HIDDEN}"),
        ("https://alice:s3cret@example.org?key=s3cret#a", f"https://{HIDDEN}@example.org?{HIDDEN}"),
        ("https://example.org/x", "https://example.org/x"),
        ("RULE:^(.+?)@EXAMPLE.ORG$", "RULE:^(.+?)@EXAMPLE.ORG$"),
        ("a certificate\n-----BEGIN EC PRIVATE KEY-----\ns3cret", HIDDEN),
    ],
)
def test_a_text_has_no_secrets(text, shown_as):
    (row,) = [row for row in shown(Settings(address=text)) if row["key"] == "address"]
    assert row["value"] == shown_as


@dataclass(frozen=True, slots=True)
class OfAnotherPlugin:
    api_key: str = setting("", doc="A secret that is not declared.")
    passphrases: tuple[str, ...] = setting((), doc="Secrets that are not declared.")
    tokens: dict[str, str] = setting({}, doc="Secrets that are not declared.")
    jaas_config: str | None = setting(None, doc="A secret that is not declared.")
    options: dict[str, typing.Any] = setting({}, doc="A table without declared settings.")
    max_tokens: int = setting(1, doc="A number.")


def test_secrets_that_a_plugin_does_not_declare_are_known_by_their_names():
    settings = OfAnotherPlugin(
        "s3cret-1",
        ("s3cret-2",),
        {"a": "s3cret-3"},
        "s3cret-4",
        {"client": {"secret": "s3cret-5", "id": "a"}, "password": "s3cret-6", "token": ""},
        7,
    )
    rows = {row["key"]: row["value"] for row in shown(settings)}
    assert "s3cret" not in json.dumps(rows)
    assert rows["options"] == {"client": {"secret": HIDDEN, "id": "a"}, "password": HIDDEN, "token": ""}
    assert rows["max_tokens"] == 7


def test_a_secret_that_is_not_set_is_shown_as_unset():
    rows = shown(Settings())
    assert all(row["default"] for row in rows)
    assert {row["key"]: row["value"] for row in rows}["named_token"] is None
    assert shown(None) == []


def settings_classes():
    """Yield the settings of each registered part, and those in their tables."""
    waiting = [found.provider.load_settings() for found in PluginRegistry().all()]
    while waiting:
        known = waiting.pop()
        if known is not None:
            yield known
            arguments = [each for spec in specs_of(known).values() for each in typing.get_args(spec.kind)]
            waiting += [each for each in arguments if dataclasses.is_dataclass(each)]


def test_each_setting_that_may_be_a_secret_is_one_or_is_known_to_be_none():
    undecided = set()
    for known in settings_classes():
        for spec in specs_of(known).values():
            arguments = typing.get_args(spec.kind)
            is_text = spec.kind is str or str in arguments
            may_be = is_text and re.search("pass|secret|token|private|key|cred", spec.name)
            may_be = may_be or (typing.get_origin(spec.kind) is dict and arguments[1] in (str, typing.Any))
            if may_be and not is_secret(spec) and spec.name not in NO_SECRETS and not spec.choices and not spec.parts:
                undecided.add(f"{known.__name__}.{spec.name}")
    assert undecided == set(), "setting(secret=True), or an entry in NO_SECRETS"
