"""The generated pages agree with the code, and describe every public name."""

import functools
import importlib
import pkgutil
import re

import pytest

import klamm.wire
from klamm.wire.api_keys import SPECS
from tests.contract.test_public_names import documented_names
from tools import generate_migration, generate_names, generate_reference, public_members

names_page = functools.cache(generate_names.names_page)
members_page = functools.cache(generate_names.members_page)
messages_page = functools.cache(generate_names.messages_page)


def test_the_page_of_settings_is_up_to_date():
    assert generate_reference.PAGE.read_text(encoding="utf-8") == generate_reference.page(), (
        "run python tools/generate_reference.py"
    )


@pytest.mark.interpreted
def test_the_page_of_names_is_up_to_date():
    assert generate_names.NAMES.read_text(encoding="utf-8") == names_page(), "run python tools/generate_names.py"


def public_classes():
    return public_members.classes(generate_names.public_names())


@pytest.mark.interpreted
def test_the_page_of_members_is_up_to_date():
    assert generate_names.MEMBERS.read_text(encoding="utf-8") == members_page(), "run python tools/generate_names.py"


@pytest.mark.interpreted
def test_every_public_class_has_a_section():
    titles = re.findall(r"^### (\S+)$", members_page(), re.M)
    assert sorted(titles) == sorted(public_classes().values())
    assert {f"{name}.{one}" for name in documented_names() for one in ("Part", "Clock", "Authorizer")} & set(titles)


@pytest.mark.interpreted
def test_every_member_has_a_description():
    classes = public_classes()
    missing = {name: found for one, name in classes.items() if (found := public_members.undocumented(one, classes))}
    assert missing == {}, "write docstrings"


def test_the_page_of_messages_is_up_to_date():
    assert generate_names.MESSAGES.read_text(encoding="utf-8") == messages_page(), "run python tools/generate_names.py"


def test_every_namespace_is_on_the_page():
    assert list(documented_names()) == list(generate_names.NAMESPACES)
    modules = {one.name for one in pkgutil.iter_modules(klamm.wire.__path__)} - {"messages", "coordinator_records"}
    assert modules == set(generate_names.WIRE)


@pytest.mark.interpreted
@pytest.mark.parametrize("namespace", [*documented_names(), *(f"klamm.wire.{one}" for one in generate_names.WIRE)])
def test_every_name_has_a_description(namespace):
    section = re.search(rf"^## {re.escape(namespace)}$(.*?)(?=^## |\Z)", names_page(), re.M | re.S)[1]
    rows = dict(re.findall(r"^\| `(\w+)[^`]*` \| (.*) \|$", section, re.M))
    assert [name for name, meaning in rows.items() if not meaning.strip()] == [], "write a docstring"
    if namespace in generate_names.NAMESPACES:
        assert sorted(importlib.import_module(namespace).__all__) == sorted(rows)


def test_every_message_is_on_the_page():
    titles = re.findall(r"^## (\d+) (\w+)$", messages_page(), re.M)
    assert titles == [(str(spec.api_key), spec.name) for spec in SPECS]


def test_the_page_of_server_properties_is_up_to_date():
    assert generate_migration.PAGE.read_text(encoding="utf-8") == generate_migration.page(), "run scripts/generate"
    renamed, kept = generate_migration.keys()
    assert renamed["num.io.threads"] == ["`io_threads` in `[server]`"]
    assert "num.partitions" in kept
    assert "acl.max.bytes" not in kept, "a key of klamm's own"
