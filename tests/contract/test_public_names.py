"""The public names of each namespace exist, are those of docs/stability.md, and still work at their old place."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

STABILITY = Path(__file__).resolve().parents[2] / "docs" / "stability.md"


def documented_names():
    """Return the names that docs/stability.md lists, by namespace."""
    sections = re.findall(
        r"^### `(klamm[.a-z]*)`[^\n]*\n(.*?)(?=^##|\Z)", STABILITY.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return {namespace: re.findall(r"`([^`]+)`", body) for namespace, body in sections}


def test_every_namespace_is_documented():
    assert list(documented_names()) == [
        "klamm",
        "klamm.acl",
        "klamm.sasl",
        "klamm.dispatch",
        "klamm.filters",
        "klamm.forwarding",
        "klamm.config",
        "klamm.http",
        "klamm.metrics",
        "klamm.runtime",
        "klamm.shared",
        "klamm.testing",
        "klamm.testing.histories",
    ]


@pytest.mark.parametrize("namespace", documented_names())
def test_each_namespace_has_exactly_its_documented_names(namespace):
    names = documented_names()[namespace]
    module = importlib.import_module(namespace)
    assert sorted(names) == sorted(module.__all__)
    assert [name for name in names if isinstance(getattr(module, name, module), ModuleType)] == [], "none is a module"


def test_a_name_has_one_namespace():
    names = [name for names in documented_names().values() for name in names]
    assert sorted(names) == sorted(set(names))


def test_the_namespace_klamm_has_few_names():
    assert len(documented_names()["klamm"]) <= 50


def run_python(program):
    return subprocess.run(
        [sys.executable, "-W", "default::DeprecationWarning", "-c", program], capture_output=True, text=True, check=True
    )


def test_a_name_of_another_namespace_works_and_warns_once_for_each_place():
    done = run_python("def ask():\n    import klamm\n    return klamm.AclOperation\nask(); print(ask().__name__)")
    assert done.stdout == "AclOperation\n"
    assert done.stderr.count("klamm.AclOperation is deprecated: import it from klamm.acl") == 1


def test_an_unknown_name_is_an_error():
    import klamm

    with pytest.raises(AttributeError, match="no attribute 'AclOperations'"):
        _ = klamm.AclOperations


def test_importing_klamm_loads_no_special_namespace():
    loaded = run_python("import klamm, sys; print(*(name for name in sys.modules))").stdout.split()
    assert set(loaded).isdisjoint({"klamm.acl", "klamm.sasl", "klamm.config.plan", "klamm.testing", "tomli", "ssl"})
