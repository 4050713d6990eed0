"""Tests of finding plugins: blocked, allowed, broken and ambiguous ones. Naming a plugin imports none of its code."""

import logging
import re
import subprocess
import sys

import pytest

from klamm import Provider, __version__, hookimpl
from klamm.api.provider import ProviderKind
from klamm.config import PLUGIN_API
from klamm.config.plugin_registry import PluginError, PluginRegistry, load_factory

GATE = ProviderKind.CONNECTION_GATE


def gates(*names, factory="nowhere:Gate", default=None):
    @hookimpl
    def klamm_connection_gates():
        for name in names:
            yield Provider(name, factory, default=name == default)

    return {"klamm_connection_gates": klamm_connection_gates}


def test_a_provider_knows_where_it_comes_from(install):
    registry = PluginRegistry(entry_points=[install("doors", "klamm-doors", **gates("b", "a"))])
    assert [found.provider.name for found in registry.providers(GATE)] == ["a", "b"]
    source = registry.resolve(GATE, "a").source
    assert (source.entry_point, source.distribution, source.version) == ("doors", "klamm-doors", "1.0")
    assert [one.provider.name for one in registry.all()] == ["a", "b"]


def test_unknown_names_are_reported_with_the_known_ones(install):
    registry = PluginRegistry(entry_points=[install("doors", "klamm-doors", **gates("quota", "rate"))])
    with pytest.raises(PluginError) as caught:
        registry.resolve(GATE, "quotas")
    assert str(caught.value) == 'unknown connection gate "quotas"; did you mean "quota"? (known: quota, rate)'


def test_one_name_of_two_distributions_is_an_error_once_it_is_named(install):
    entry_points = [install("a", "klamm-a", **gates("door", "other")), install("b", "klamm-b", **gates("door"))]
    registry = PluginRegistry(entry_points=entry_points)
    assert registry.resolve(GATE, "other").source.distribution == "klamm-a"
    with pytest.raises(PluginError, match='"door" is provided by .*klamm-a and .*klamm-b; block one of them: .*'):
        registry.resolve(GATE, "door")
    assert PluginRegistry(["b"], entry_points=entry_points).resolve(GATE, "door").source.distribution == "klamm-a"


def test_a_blocked_plugin_is_not_imported(install):
    registry = PluginRegistry(["gone"], entry_points=[install("gone", "klamm-gone")])
    assert registry.broken == []
    with pytest.raises(PluginError, match='unknown connection gate "door"; blocked: gone'):
        registry.resolve(GATE, "door")


def test_an_unknown_name_of_a_blocked_plugin_is_warned_of(install, caplog):
    registry = PluginRegistry(["door", "gone"], entry_points=[install("doors", "klamm-doors", **gates("a"))])
    assert [found.provider.name for found in registry.providers(GATE)] == ["a"]
    assert [record.getMessage() for record in caplog.records] == [
        'the plugin "door" is blocked but not installed; did you mean "doors"?',
        'the plugin "gone" is blocked but not installed',
    ]


def test_one_provider_of_a_kind_is_the_default(install):
    one, two = install("one", "klamm-one", **gates("a", "b", default="b")), install("two", "klamm-two", **gates("c"))
    three = install("three", "klamm-three", **gates("d", default="d"))
    assert PluginRegistry(entry_points=[one, two]).default(GATE) == "b"
    with pytest.raises(
        PluginError, match='more than one .* is marked as the default, "b" of klamm-one and "d" of klamm-three; name'
    ):
        PluginRegistry(entry_points=[one, three]).default(GATE)
    with pytest.raises(PluginError, match=r"no connection gate is the default; name one \(known: c\); blocked: one"):
        PluginRegistry(["one"], entry_points=[one, two]).default(GATE)


@pytest.mark.parametrize(
    ("allowed", "names"), [(None, ["a", "b", "own"]), ("", ["own"]), ("b, c", ["b", "own"]), ("a,b", ["a", "b", "own"])]
)
def test_the_environment_can_name_the_third_party_plugins_to_load(install, allowed, names):
    entry_points = [
        install("own", "klamm", **gates("own")),
        install("a", "klamm-a", **gates("a")),
        install("b", "klamm-b", **gates("b")),
    ]
    environment = {} if allowed is None else {"KLAMM_LOAD_PLUGINS": allowed}
    registry = PluginRegistry(environment=environment, entry_points=entry_points)
    assert [found.provider.name for found in registry.providers(GATE)] == names


def test_a_broken_plugin_is_a_warning_until_something_is_missing(install, caplog):
    entry_points = [install("torn", "klamm-torn"), install("a", "klamm-a", **gates("door"))]
    with caplog.at_level(logging.WARNING, "klamm.plugins"):
        registry = PluginRegistry(entry_points=entry_points)
    assert "plugin torn of klamm-torn cannot be loaded" in caplog.text
    assert "pip uninstall klamm-torn" in caplog.text
    assert registry.resolve(GATE, "door").source.distribution == "klamm-a"
    with pytest.raises(PluginError, match=r"the plugin torn of klamm-torn is broken: ModuleNotFoundError"):
        registry.resolve(GATE, "torn_door")


@pytest.mark.parametrize(
    ("wanted", "update"), [(PLUGIN_API + 1, "klamm"), (PLUGIN_API - 1, "the plugin"), ("1", "the plugin")]
)
def test_a_plugin_that_requires_another_api_says_what_to_update(install, caplog, wanted, update):
    registry = PluginRegistry(entry_points=[install("a", "klamm-a", PLUGIN_API=wanted, **gates("door"))])
    says = f"it requires PLUGIN_API {wanted!r}, klamm {__version__} has {PLUGIN_API}: update {update}"
    assert says in caplog.text
    with pytest.raises(PluginError, match=re.escape(says)):
        registry.resolve(GATE, "door")


def test_a_plugin_that_requires_this_api_is_loaded(install):
    registry = PluginRegistry(entry_points=[install("a", "klamm-a", PLUGIN_API=PLUGIN_API, **gates("door"))])
    assert registry.broken == []
    assert registry.resolve(GATE, "door").source.distribution == "klamm-a"


def test_a_hook_that_raises_disables_only_its_plugin(install, caplog):
    @hookimpl
    def klamm_connection_gates():
        raise ZeroDivisionError("on purpose")

    entry_points = [
        install("bad", "klamm-bad", klamm_connection_gates=klamm_connection_gates),
        install("good", "klamm-good", **gates("door")),
    ]
    registry = PluginRegistry(entry_points=entry_points)
    assert registry.resolve(GATE, "door").source.distribution == "klamm-good"
    assert "plugin bad of klamm-bad: klamm_connection_gates failed" in caplog.text
    with pytest.raises(PluginError, match=r"bad of klamm-bad is broken: ZeroDivisionError"):
        registry.resolve(GATE, "other")


def test_a_factory_that_cannot_be_imported_is_reported_with_distribution_and_cause(install):
    registry = PluginRegistry(entry_points=[install("a", "klamm-a", **gates("door"))])
    with pytest.raises(PluginError, match=r'connection gate "door" of klamm-a cannot be loaded: ModuleNotFoundError'):
        load_factory(registry.resolve(GATE, "door"))


def test_the_environment_can_trace_what_is_loaded(install, capsys):
    entry_points = [install("a", "klamm-a", **gates("door")), install("b", "klamm-b", **gates("door"))]
    PluginRegistry(["b"], environment={"KLAMM_TRACE_PLUGINS": "1"}, entry_points=entry_points)
    assert capsys.readouterr().err == "klamm: plugin a of klamm-a 1.0\n"


def test_a_plugin_object_can_be_added_after_providers_were_requested(install):
    registry = PluginRegistry(entry_points=[install("a", "klamm-a", **gates("door"))])
    assert len(registry.providers(GATE)) == 1

    class Late:
        @hookimpl
        def klamm_connection_gates(self):
            yield Provider("late", "nowhere:Late")

    registry.add(Late(), "late-comer")
    assert registry.resolve(GATE, "late").source.distribution == "late-comer"


def test_naming_a_provider_imports_none_of_its_code():
    script = """
import sys
import klamm_broker, klamm_dispatch, klamm_echo, klamm_plaintext, klamm_quotas
from klamm.config.plugin_registry import PluginRegistry
registry = PluginRegistry(entry_points=())
for module in (klamm_broker, klamm_dispatch, klamm_echo, klamm_plaintext, klamm_quotas):
    registry.add(module, module.__name__)
assert len(registry.all()) >= 6, registry.all()
print([name for name in sys.modules if name.startswith("klamm_") and "." in name])
"""
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.path[:0] = " + repr(sys.path) + script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_misspelt_hook_breaks_its_plugin(install):
    @hookimpl
    def klamm_connection_gate():
        yield Provider("door", "nowhere:Gate")

    registry = PluginRegistry(entry_points=[install("typo", "klamm-typo", klamm_connection_gate=klamm_connection_gate)])
    ((source, error),) = registry.broken
    assert source.distribution == "klamm-typo"
    assert str(error) == 'there is no hook klamm_connection_gate; did you mean "klamm_connection_gates"?'


def test_a_hook_that_yields_anything_else_breaks_its_plugin(install):
    @hookimpl
    def klamm_connection_gates():
        yield "door"

    hooks = {"klamm_connection_gates": klamm_connection_gates}
    registry = PluginRegistry(entry_points=[install("wrong", "klamm-wrong", **hooks)])
    with pytest.raises(PluginError, match="a Provider was expected, not 'door'"):
        registry.resolve(GATE, "door")


@pytest.mark.parametrize("kind", list(ProviderKind))
def test_a_part_of_any_kind_is_replaced_by_blocking_the_other_distributions(install, kind):
    def hooks():
        @hookimpl
        def implementation():
            yield Provider("part", "nowhere:Part")
            yield Provider("other", "nowhere:Part")

        return {kind.hook: implementation}

    entry_points = [install("own", "klamm", **hooks()), install("theirs", "acme", **hooks())]
    part = f"{kind.name.lower()}:part"
    with pytest.raises(PluginError, match=f'block one of them: "{part}@acme" or "{part}@klamm"'):
        PluginRegistry(entry_points=entry_points).resolve(kind, "part")
    for left_out, used in (("klamm", "acme"), ("acme", "klamm")):
        registry = PluginRegistry([f"{part}@{left_out}"], entry_points=entry_points)
        assert registry.resolve(kind, "part").source.distribution == used
        assert [one.source.distribution for one in registry.blocked_providers] == [left_out]
        assert len([one for one in registry.providers(kind) if one.provider.name == "other"]) == 2
    with pytest.raises(PluginError, match=f"unknown .* blocked: {part}"):
        PluginRegistry([part], entry_points=entry_points).resolve(kind, "part")


def test_a_blocked_part_of_an_unknown_kind_or_name_is_reported(install, caplog):
    with pytest.raises(PluginError, match='there is no kind "sasl_mechanisms"; did you mean "sasl_mechanism"?'):
        PluginRegistry(["sasl_mechanisms:PLAIN"], entry_points=[])
    registry = PluginRegistry(["connection_gate:b@klamm"], entry_points=[install("doors", "klamm", **gates("a"))])
    assert [found.provider.name for found in registry.providers(GATE)] == ["a"]
    assert 'the provider "connection_gate:b@klamm" is blocked but not installed' in caplog.text


@pytest.mark.parametrize("option", ["wrapper", "hookwrapper", "tryfirst", "trylast"])
def test_an_option_of_pluggy_without_effect_is_refused(install, option):
    @hookimpl(**{option: True})
    def klamm_connection_gates():
        yield Provider("door", "nowhere:Gate")

    entry_point = install("doors", "klamm-doors", klamm_connection_gates=klamm_connection_gates)
    registry = PluginRegistry(entry_points=[entry_point])
    with pytest.raises(PluginError, match=f"klamm does not support {option}=True"):
        registry.resolve(GATE, "door")
