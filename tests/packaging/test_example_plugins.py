"""Builds the packages of `examples/plugins`, installs each beside klamm's wheel, and runs its own tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tomli

from tests.packaging.test_wheels import ROOT, clean_environment, install, run

pytestmark = pytest.mark.interop

# The tests of klamm-print are in tests/unit/plugins.
PROJECTS = (ROOT / "examples" / "plugins").glob("*/pyproject.toml")
EXAMPLES = sorted(path.parent for path in PROJECTS if path.parent.name != "klamm-print")
# One process builds all, because the import of hatchling takes longer than a build.
BUILD = """
import os, sys
from hatchling.build import build_wheel
for folder in sys.argv[2:]:
    os.chdir(folder)
    build_wheel(sys.argv[1])
"""


def project_of(folder: Path) -> dict[str, object]:
    project: dict[str, object] = tomli.loads((folder / "pyproject.toml").read_text())["project"]
    return project


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of an environment with klamm, the examples and their test dependencies."""
    target = tmp_path_factory.mktemp("examples")
    run(sys.executable, "-c", BUILD, target, ROOT, *EXAMPLES)
    wheels = sorted(target.glob("*.whl"))
    assert len(wheels) == 1 + len(EXAMPLES)
    tools = [Path("pytest"), Path("confluent-kafka")]
    return install(target / "venv", *wheels, *tools)


def test_klamm_finds_each_example(programs: Path) -> None:
    found = json.loads(run(programs / "klamm", "plugins", "--json"))
    names = {str(project_of(folder)["name"]) for folder in EXAMPLES}
    assert {one["distribution"] for one in found} == {"klamm", *names}


def test_the_examples_own_tests_pass_with_a_real_client(programs: Path, tmp_path: Path) -> None:
    for folder in EXAMPLES:
        assert list(folder.glob("tests/test_*.py")), f"{folder.name} has no tests"
    script = "import sys, klamm, pytest; assert 'site-packages' in klamm.__file__; sys.exit(pytest.main(sys.argv[1:]))"
    command = [programs / "python", "-c", script, "-q", "--import-mode=importlib", "-p", "no:cacheprovider"]
    tests = [str(folder / "tests") for folder in EXAMPLES]
    command += ["--rootdir", str(tmp_path), "-c", "/dev/null", *tests]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=clean_environment())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_the_configuration_of_an_example_is_valid(programs: Path, folder: Path, tmp_path: Path) -> None:
    block = (folder / "README.md").read_text().partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "klamm.toml").write_text(block)
    run(programs / "klamm", "check", tmp_path / "klamm.toml")
