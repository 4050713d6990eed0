"""What `scripts/check` runs for a change, and that `scripts/generate` knows every generator."""

import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def check():
    loader = importlib.machinery.SourceFileLoader("klamm_check", str(ROOT / "scripts" / "check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("core/klamm/wire/batch_limits.py", "tests/unit/filters/test_filtered_records.py"),  # names the module
        ("plugins/apis/klamm_broker/handlers/k999_new.py", "tests/unit/broker"),  # no test names it
        ("tests/unit/packaging/test_scripts.py", "tests/unit/packaging/test_scripts.py"),
    ],
)
def test_a_change_runs_the_tests_near_it(check, changed, expected):
    assert expected in check.tests_near({changed})
    assert expected not in check.tests_near(set())


def test_documents_alone_run_the_tests_of_documents(check):
    assert check.tests_near({"README.md", "gone.py"}) == {*check.ALWAYS}


def test_every_generator_is_called():
    script = (ROOT / "scripts" / "generate").read_text(encoding="utf-8")
    generators = {path.stem.removeprefix("generate_") for path in (ROOT / "scripts").glob("generate_*.py")}
    assert generators == set(script.partition("scripts/generate_{")[2].partition("}")[0].split(","))
