"""Each hook has providers that are found and resolved, documentation, and a test in this file."""

import inspect
import re
from pathlib import Path

import pytest

from klamm import Provider, hookimpl
from klamm.api import hookspecs
from klamm.api.provider import ProviderKind
from klamm.config.plugin_registry import PluginRegistry, load_factory

DOCS = Path(__file__).resolve().parents[3] / "docs" / "hooks.md"
HOOKS = {name: value for name, value in vars(hookspecs).items() if name.startswith("klamm_")}


class EveryHook:
    """A plugin that implements all hooks, with one provider each, which has the name of the hook."""

    @hookimpl
    def klamm_transports(self):
        yield self.provider("klamm_transports")

    @hookimpl
    def klamm_authenticators(self):
        yield self.provider("klamm_authenticators")

    @hookimpl
    def klamm_sasl_mechanisms(self):
        yield self.provider("klamm_sasl_mechanisms")

    @hookimpl
    def klamm_credential_stores(self):
        yield self.provider("klamm_credential_stores")

    @hookimpl
    def klamm_connection_gates(self):
        yield self.provider("klamm_connection_gates")

    @hookimpl
    def klamm_throttles(self):
        yield self.provider("klamm_throttles")

    @hookimpl
    def klamm_authorizers(self):
        yield self.provider("klamm_authorizers")

    @hookimpl
    def klamm_api_sets(self):
        yield self.provider("klamm_api_sets")

    @hookimpl
    def klamm_request_filters(self):
        yield self.provider("klamm_request_filters")

    @hookimpl
    def klamm_request_observers(self):
        yield self.provider("klamm_request_observers")

    @hookimpl
    def klamm_processor_assigners(self):
        yield self.provider("klamm_processor_assigners")

    @hookimpl
    def klamm_request_schedulers(self):
        yield self.provider("klamm_request_schedulers")

    @hookimpl
    def klamm_extensions(self):
        yield self.provider("klamm_extensions")

    @hookimpl
    def klamm_commands(self):
        yield self.provider("klamm_commands")

    @staticmethod
    def provider(hook):
        return Provider(f"one-of-{hook}", "builtins:dict", summary=hook)


def check(hook):
    """Check that the hook's only provider is found under its kind, and under no other kind."""
    registry = PluginRegistry(entry_points=())
    registry.add(EveryHook(), "every-hook")
    found = registry.resolve(ProviderKind(hook), f"one-of-{hook}")
    assert found.provider.summary == hook
    assert load_factory(found) is dict
    assert [one.kind for one in registry.all() if one.provider.summary == hook] == [ProviderKind(hook)]


def test_hook_klamm_transports():
    check("klamm_transports")


def test_hook_klamm_authenticators():
    check("klamm_authenticators")


def test_hook_klamm_sasl_mechanisms():
    check("klamm_sasl_mechanisms")


def test_hook_klamm_credential_stores():
    check("klamm_credential_stores")


def test_hook_klamm_connection_gates():
    check("klamm_connection_gates")


def test_hook_klamm_throttles():
    check("klamm_throttles")


def test_hook_klamm_authorizers():
    check("klamm_authorizers")


def test_hook_klamm_api_sets():
    check("klamm_api_sets")


def test_hook_klamm_request_filters():
    check("klamm_request_filters")


def test_hook_klamm_request_observers():
    check("klamm_request_observers")


def test_hook_klamm_processor_assigners():
    check("klamm_processor_assigners")


def test_hook_klamm_request_schedulers():
    check("klamm_request_schedulers")


def test_hook_klamm_extensions():
    check("klamm_extensions")


def test_hook_klamm_commands():
    check("klamm_commands")


def test_hooks_and_kinds_of_providers_are_the_same():
    assert set(HOOKS) == {kind.hook for kind in ProviderKind}


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented_with_its_signature_and_tested(hook):
    section = re.search(rf"^## {hook}$(.*?)(?=^## |\Z)", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert section, f"docs/hooks.md has no section {hook}"
    assert f"def {hook}{inspect.signature(HOOKS[hook])}:".replace("'", "") in section[1]
    assert inspect.isfunction(globals().get(f"test_hook_{hook}")), f"no test_hook_{hook} in this file"
