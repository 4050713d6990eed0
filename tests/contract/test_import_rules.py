"""Rules about imports: the core imports no plugin, plugins import only public names, `wire` does no I/O."""

import ast
import importlib

import pytest

from klamm.api.provider import ProviderKind
from klamm.config.plugin_registry import PluginRegistry
from tests.contract.source_rules import ROOT, imports

CORE = ROOT / "core" / "klamm"
PLUGIN_PACKAGES = sorted(
    path.parent for pattern in ("plugins/**", "spark") for path in ROOT.glob(f"{pattern}/klamm_*/__init__.py")
)
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/plugins/*/klamm_*/__init__.py"))
NAMESPACES = (
    "klamm",
    "klamm.acl",
    "klamm.config",
    "klamm.dispatch",
    "klamm.filters",
    "klamm.forwarding",
    "klamm.http",
    "klamm.metrics",
    "klamm.runtime",
    "klamm.sasl",
    "klamm.shared",
    "klamm.testing",
    "klamm.testing.histories",
)
IO_MODULES = {
    "asyncio",
    "concurrent",
    "datetime",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "select",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "sys",
    "threading",
    "time",
}


def public_names(namespace):
    return importlib.import_module(namespace).__all__


def violations(folder, allowed):
    """Return `FILE:LINE module name` for each import under `folder` that `allowed(module, name)` refuses."""
    wrong = []
    for path in sorted(folder.rglob("*.py")):
        package = ".".join(path.parent.relative_to(folder.parent).parts)
        wrong += [
            f"{path.relative_to(folder.parent)}:{line} {module} {name or ''}".rstrip()
            for line, module, name in imports(path.read_text(encoding="utf-8"), package)
            if not allowed(module, name)
        ]
    return wrong


def core_may(module, name):
    return not module.startswith("klamm_") and module.partition(".")[0] not in ("tests", "pyspark")


def plugin_may(own):
    def may(module, name):
        top = module.partition(".")[0]
        if top == "klamm":
            return (module + ".").startswith("klamm.wire.") or (module in NAMESPACES and name in public_names(module))
        return not top.startswith("klamm_") or top == own

    return may


def wire_may(module, name):
    top = module.partition(".")[0]
    if top == "klamm":
        return module.startswith("klamm.wire.") or module == "klamm.wire"
    return top not in IO_MODULES


def test_the_core_imports_no_plugin():
    assert violations(CORE, core_may) == []


@pytest.mark.parametrize("folder", [*PLUGIN_PACKAGES, *EXAMPLES], ids=lambda folder: folder.name)
def test_a_plugin_imports_only_public_names_and_itself(folder):
    assert violations(folder, plugin_may(folder.name)) == []


def reads_toml_as_all(module, name):
    return module.partition(".")[0] != "tomllib"


@pytest.mark.parametrize("folder", [CORE, *PLUGIN_PACKAGES], ids=lambda folder: folder.name)
def test_one_library_reads_all_toml(folder):
    """Two libraries would differ in the files that they accept, and in their error messages."""
    assert violations(folder, reads_toml_as_all) == []


def test_the_core_names_no_default_part():
    """A provider itself says if it is the default.

    The starter file of `klamm init` may name parts, because it is an example.
    """
    registry = PluginRegistry(environment={"KLAMM_LOAD_PLUGINS": ""})
    kinds = (
        ProviderKind.TRANSPORT,
        ProviderKind.API_SET,
        ProviderKind.PROCESSOR_ASSIGNER,
        ProviderKind.REQUEST_SCHEDULER,
    )
    defaults = {registry.default(kind) for kind in kinds}
    assert defaults == {"plaintext", "broker", "round_robin", "fifo"}
    named = [
        f"{path.relative_to(CORE)}:{node.lineno}"
        for path in sorted(CORE.rglob("*.py"))
        if "wire" not in path.relative_to(CORE).parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in defaults
    ]
    assert named == []


def test_wire_does_no_io_and_imports_nothing_above_it():
    assert violations(CORE / "wire", wire_may) == []


def test_the_packages_of_plugins_are_found():
    assert {"klamm_plaintext", "klamm_broker", "klamm_echo"} <= {folder.name for folder in PLUGIN_PACKAGES}


@pytest.mark.parametrize(
    ("source", "rule", "line"),
    [
        ("import klamm_broker.log\n", core_may, 1),
        ("def f():\n    from klamm_quotas import x\n", core_may, 2),
        ("from klamm.network.selector import Selector\n", plugin_may("klamm_x"), 1),
        ("from klamm import server\n", plugin_may("klamm_x"), 1),
        ("import tomllib\n", reads_toml_as_all, 1),
        ("import klamm\n", plugin_may("klamm_x"), 1),
        ("from klamm import AclOperation\n", plugin_may("klamm_x"), 1),
        ("from klamm.acl import Provider\n", plugin_may("klamm_x"), 1),
        ("from klamm.config.plan import load_plan\n", plugin_may("klamm_x"), 1),
        ("import klamm_y\n", plugin_may("klamm_x"), 1),
        ("from time import monotonic\n", wire_may, 1),
        ("from klamm.api.context import Address\n", wire_may, 1),
        ("from ..context import Address\n", wire_may, 1),
    ],
)
def test_the_rules_find_forbidden_imports(tmp_path, source, rule, line):
    folder = tmp_path / "klamm" / "wire"
    folder.mkdir(parents=True)
    (folder / "wrong.py").write_text(source)
    (complaint,) = violations(folder.parent, rule) if "..context" in source else violations(folder, rule)
    assert f"wrong.py:{line} " in complaint
