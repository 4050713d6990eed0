"""Tests of the commands that `scripts/check` runs for a change, and of the list of generators in `scripts/generate`."""

import importlib.machinery
import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

from tests.shares import is_in_share

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def check():
    loader = importlib.machinery.SourceFileLoader("klamm_check", str(ROOT / "scripts" / "check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            "core/klamm/wire/batch_limits.py",
            "tests/unit/filters/test_filtered_records.py",
        ),  # This file names the module.
        ("plugins/apis/klamm_broker/handlers/k999_new.py", "tests/unit/broker"),  # No test names this module.
        ("tests/unit/packaging/test_scripts.py", "tests/unit/packaging/test_scripts.py"),
    ],
)
def test_a_change_runs_the_tests_near_it(check, changed, expected):
    assert expected in check.tests_near({changed})
    assert expected not in check.tests_near(set())


@pytest.mark.parametrize(
    "changed",
    [
        "core/klamm/wire/messages/heartbeat.py",
        "plugins/apis/klamm_broker/handlers/k999_new.py",
        "plugins/apis/klamm_broker/handlers/served_apis.py",
    ],
)
def test_a_changed_api_runs_the_tests_that_a_new_one_meets(check, changed):
    assert check.tests_near({changed}) >= {*check.API_TESTS}


def test_the_tests_of_apis_exist(check):
    for test in check.API_TESTS:
        file, _, name = test.partition("::")
        assert f"def {name or 'test_'}" in (ROOT / file).read_text(encoding="utf-8"), test


def test_documents_alone_run_the_tests_of_documents(check):
    assert check.tests_near({"README.md", "gone.py"}) == {*check.ALWAYS}


def test_every_generator_is_called():
    """Generators that read Kafka's jars are left out, because they run for a release of Kafka."""
    script = (ROOT / "scripts" / "generate").read_text(encoding="utf-8")
    generators = {path.stem.removeprefix("generate_") for path in (ROOT / "tools").glob("generate_*.py")}
    called = set(script.partition("tools/generate_{")[2].partition("}")[0].split(","))
    assert generators - {"errors", "releases"} == called
    assert list((ROOT / "scripts").glob("generate_*")) == [], "generators are in one folder"


def test_the_folders_of_packages_are_listed_alike():
    """`pyproject.toml` cannot list them once, because hatchling and mypy accept no patterns here."""
    build, mypy = PROJECT["tool"]["hatch"]["build"], PROJECT["tool"]["mypy"]
    folders = sorted(
        {
            str(path.parent.parent.relative_to(ROOT))
            for path in ROOT.glob("[cps]*/**/__init__.py")
            if path.parent.name.startswith(("klamm", "pyspark_klamm"))
            and "templates" not in path.parts
            and not (path.parent.parent / "__init__.py").exists()
        }
    )
    assert sorted(build["dev-mode-dirs"]) == folders
    assert sorted({str(Path(package).parent) for package in build["targets"]["wheel"]["packages"]}) == folders
    assert sorted(folder for folder in mypy["mypy_path"] if not folder.startswith("examples")) == folders


@pytest.mark.parametrize("total", [1, 2, 3, 4])
def test_each_test_file_is_in_one_share(total):
    """Some versions of Python divide the test files among themselves."""
    files = list((ROOT / "tests" / "unit").rglob("test_*.py"))
    of_file = [sum(is_in_share(path, f"{number}/{total}") for number in range(1, total + 1)) for path in files]
    of_share = [sum(is_in_share(path, f"{number}/{total}") for path in files) for number in range(1, total + 1)]
    assert set(of_file) == {1}
    assert min(of_share) > len(files) / total / 2


def test_every_supported_python_is_tested():
    script = (ROOT / "scripts" / "test").read_text(encoding="utf-8")
    tested = re.search(r"^pythons=\((.*)\)$", script, re.MULTILINE)[1].split()
    classifiers = PROJECT["project"]["classifiers"]
    versions = [found[1] for line in classifiers if (found := re.search(r":: Python :: (3\.\d+)$", line))]
    assert tested == versions
    built = PROJECT["tool"]["cibuildwheel"]["build"]
    assert built == [f"cp{version.replace('.', '')}-*" for version in versions], "a release has a wheel for each"


def test_each_folder_of_tests_is_in_a_stage():
    script = (ROOT / "scripts" / "test").read_text(encoding="utf-8")
    folders = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("test_*.py")}
    assert {folder for folder in folders if f" tests/{folder} " not in script.partition('say "unit tests"')[2]} == set()


def test_the_page_of_the_lake_names_the_pinned_spark_and_delta():
    spark = PROJECT["project"]["optional-dependencies"]["spark"]
    pins = dict(re.match(r"([a-z-]+).*==([\d.]+)$", pin).groups() for pin in spark if "==" in pin)
    page = (ROOT / "docs" / "audit" / "operations.md").read_text(encoding="utf-8")
    assert f"`klamm[spark]` pins PySpark {pins['pyspark']} and Delta {pins['delta-spark']}:" in page
