"""Each table of docs/reference/settings.md works at the page's place, together with the key that names its part."""

import re

import pytest

from klamm.config.misplaced_keys import OF_SASL, PART_KEYS
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.config.problems import ConfigError
from tools.generate_reference import PAGE

HEADING = re.compile(r"^## `\[(.+)\]`\n\n(?:The ([^`]+) `)?", re.MULTILINE)
KINDS = {kind.label: kind for kind in PART_KEYS}
OWN = {"server", "plugins", "listeners.NAME"}


def headings():
    return HEADING.findall(PAGE.read_text(encoding="utf-8"))


def problems_of(text, tmp_path):
    """Return problems with the places of tables. Missing required settings do not count here."""
    file = tmp_path / "klamm.toml"
    file.write_text(text)
    try:
        load_plan(file, PluginRegistry())
    except ConfigError as error:
        return [str(one) for one in error.problems if not one.message.startswith(("is required", "must "))]
    return []


def named(kind_label, table):
    """Return a file with a table as the page writes it, and with the key that names its part."""
    name = table.rpartition(".")[2]
    listener = ["[listeners.a]", 'bind = "127.0.0.1:0"']
    sasl, server = [], ["[server]"]
    kind = KINDS.get(kind_label)
    if kind in OF_SASL:
        listener.append('authenticator = "sasl"')
        sasl = ["[listeners.a.sasl]", PART_KEYS[kind].format(name)]
    elif kind is not None:
        listener.append(PART_KEYS[kind].format(name))
    elif kind_label == "api set":
        listener.append(f'api_set = "{name}"')
    elif kind_label == "request scheduler":
        server.append(f'request_scheduler = "{name}"')
    else:
        assert kind_label == "extension", kind_label
        server.append(f'extensions = ["{name}"]')
    path = table.replace("NAME", "a", 1)
    return "\n".join([*server, *listener, *sasl, f"[{path}]", ""])


@pytest.mark.parametrize(("table", "kind"), [one for one in headings() if one[0] not in OWN])
def test_a_table_works_as_the_page_writes_it(table, kind, tmp_path):
    assert problems_of(named(kind, table), tmp_path) == []


def test_every_table_is_tried():
    assert len(headings()) > 30


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (
            "listeners.a.OAUTHBEARER",
            "listeners.a.OAUTHBEARER: belongs to a sasl mechanism: write [listeners.a.sasl.OAUTHBEARER]",
        ),
        ("listeners.a.file", "listeners.a.file: belongs to a credential store: write [listeners.a.sasl.file]"),
        (
            "OAUTHBEARER",
            'it belongs into [listeners.NAME.sasl.OAUTHBEARER], beside mechanisms = ["OAUTHBEARER"]',
        ),
    ],
)
def test_a_table_of_sasl_in_another_place_is_reported_with_its_place(table, says, tmp_path):
    (problem,) = problems_of(f'[listeners.a]\nbind = "127.0.0.1:0"\n[{table}]\n', tmp_path)
    assert says in problem
