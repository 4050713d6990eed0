"""No modules import each other in a circle, and no module of the core imports a module of a higher layer."""

import pytest

from tests.contract.source_rules import ROOT, circles, import_graph, imports, upward_imports

CORE = ROOT / "core" / "klamm"
PACKAGES = sorted(
    path.parent
    for pattern in ("core", "plugins/*", "spark", "examples/plugins/*")
    for path in ROOT.glob(f"{pattern}/klamm*/__init__.py")
)

LAYERS = (
    ("klamm.compiled",),
    ("klamm.wire",),
    ("klamm.runtime", "klamm.logs"),
    ("klamm.shared",),
    # A context passes the registry to parts. The modules that measure klamm itself are in a higher layer.
    ("klamm.metrics.metrics_registry",),
    ("klamm.api",),
    ("klamm.metrics",),
    ("klamm.requests",),
    ("klamm.network",),
    ("klamm.config",),
    ("klamm.server",),
    ("klamm.workers",),
    ("klamm.cli", "klamm.testing"),
    ("klamm.__main__", "klamm"),
)
"""The layers of the core, from the lowest to the highest. A module imports modules of its own layer and lower ones."""

AUDIT = ROOT / "spark" / "klamm_spark"
AUDIT_LAYERS = (
    ("klamm_spark.errors", "klamm_spark.stopping"),
    ("klamm_spark.storage",),
    ("klamm_spark.events",),
    ("klamm_spark.requests",),
    ("klamm_spark.tlog",),
    ("klamm_spark.settings",),
    ("klamm_spark.spool",),
    # The server runs these modules. Nothing that reads a spool or a lake imports them.
    ("klamm_spark.observer",),
    ("klamm_spark.spark",),
    ("klamm_spark.lake",),
    ("klamm_spark.queries",),
    ("klamm_spark.terminal",),
    ("klamm_spark.findings",),
    ("klamm_spark.report",),
    ("klamm_spark.cli",),
    ("klamm_spark.__main__", "klamm_spark"),
)
"""The layers of the audit's folders, from the lowest to the highest."""

NOT_IN_REQUESTS = {"asyncio", "multiprocessing", "select", "selectors", "socket", "ssl", "threading"}

# Exceptions that must be removed. A test fails if one has become unnecessary. Do not add any.
KNOWN_CIRCLES: dict[str, set[str]] = {}
KNOWN_UPWARD: set[str] = set()
# This module has the threads of handlers. Everything else in `requests` runs on the calling thread.
KNOWN_IN_REQUESTS = {"handler_pool.py threading"}


def unexpected_circles(graph, known):
    return [sorted(circle) for circle in circles(graph) if not circle <= known]


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_no_modules_import_each_other_in_a_circle(folder):
    graph = import_graph(folder)
    known = KNOWN_CIRCLES.get(folder.name, set())
    assert unexpected_circles(graph, known) == []
    assert known <= set().union(*circles(graph)), "take these out of KNOWN_CIRCLES"


def test_no_module_of_the_core_imports_upward():
    found = set(upward_imports(import_graph(CORE), LAYERS))
    assert sorted(found - KNOWN_UPWARD) == []
    assert sorted(KNOWN_UPWARD - found) == [], "take these out of KNOWN_UPWARD"


def test_no_module_of_the_audit_imports_upward():
    assert upward_imports(import_graph(AUDIT), AUDIT_LAYERS) == []


def test_modules_that_read_events_do_not_import_the_observer():
    found = {
        f"{module} -> {target}"
        for module, targets in import_graph(AUDIT).items()
        for target in targets
        if target.startswith("klamm_spark.observer") and not module.startswith("klamm_spark.observer")
    }
    assert not found


def test_requests_knows_no_socket_selector_or_thread():
    found = {
        f"{path.name} {module}"
        for path in (CORE / "requests").glob("*.py")
        for _line, module, name in imports(path.read_text(encoding="utf-8"))
        if module.partition(".")[0] in NOT_IN_REQUESTS and (module, name) != ("threading", "Lock")
    }
    assert sorted(found - KNOWN_IN_REQUESTS) == []
    assert sorted(KNOWN_IN_REQUESTS - found) == [], "take these out of KNOWN_IN_REQUESTS"


def test_the_layers_name_every_package():
    assert {"klamm", "klamm_broker", "klamm_sasl", "klamm_spark", "klamm_print"} <= {folder.name for folder in PACKAGES}


@pytest.fixture
def package(tmp_path):
    """Return `package({"low/a.py": "import …"})`, which writes the files of a package."""

    def write(files):
        folder = tmp_path / "klamm_x"
        for name in {"__init__.py", *files}:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files.get(name, ""))
        return folder

    return write


@pytest.mark.parametrize(
    "back",
    [
        "import klamm_x.a\n",
        "from klamm_x import a\n",
        "from klamm_x.a import A\n",
        "from . import a\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from klamm_x.a import A\n",
        "def f():\n    from klamm_x.a import A\n",
    ],
)
def test_circles_finds_a_circle(package, back):
    folder = package({"a.py": "from klamm_x.b import B\n", "b.py": "from klamm_x.c import C\n", "c.py": back})
    assert circles(import_graph(folder)) == [{"klamm_x.a", "klamm_x.b", "klamm_x.c"}]


def test_circles_leaves_out_a_module_that_only_imports_a_circle(package):
    folder = package(
        {"a.py": "from klamm_x import b\n", "b.py": "from klamm_x import c\n", "c.py": "import klamm_x.b\n"}
    )
    assert circles(import_graph(folder)) == [{"klamm_x.b", "klamm_x.c"}]


def test_upward_imports_finds_an_upward_import(package):
    folder = package({"low/a.py": "from klamm_x.high import b\n", "high/b.py": "from klamm_x.low import a\n"})
    graph = import_graph(folder)
    layers = (("klamm_x.low",), ("klamm_x.high",), ("klamm_x",))
    assert upward_imports(graph, layers) == ["klamm_x.low.a -> klamm_x.high.b"]
    exception = (("klamm_x.high.b",), *layers)
    assert upward_imports(graph, exception) == ["klamm_x.high.b -> klamm_x.low.a"]
    with pytest.raises(ValueError, match="klamm_x.low.a belongs to no layer"):
        upward_imports(graph, (("klamm_x.high",),))
