"""Tests of `klamm plugins new`: the new package passes its own tests, and its TOML is valid."""

import os
import re
import runpy
import subprocess
import sys

import pytest
import tomli

from klamm import __version__
from klamm.api.provider import ProviderKind
from klamm.cli.main import main
from klamm.cli.templates import KINDS
from klamm.config import PLUGIN_API


def test_packages_pass_their_own_tests_at_once(tmp_path, capsys):
    for kind in KINDS:
        assert (
            main(["plugins", "new", f"klamm-my-{kind.replace('_', '-')}", "--kind", kind, "--in", str(tmp_path)]) == 0
        )
        assert "next: cd" in capsys.readouterr().out
    several = [argument for kind in KINDS for argument in ("--kind", kind)]
    assert main(["plugins", "new", "klamm-several", *several, "--in", str(tmp_path)]) == 0
    folders = sorted(tmp_path.iterdir())
    path = os.pathsep.join([*map(str, folders), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", "/dev/null", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *folders],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = sum(text.count("def test_") for text in (file.read_text() for file in tmp_path.rglob("test_*.py")))
    assert f"{written} passed" in done.stdout
    assert written == 2 * sum(template.tests.count("def test_") for template in KINDS.values())


def test_a_package_names_the_version_of_klamm_that_it_requires(tmp_path):
    assert main(["plugins", "new", "klamm-mine", "--kind", "gate", "--kind", "filter", "--in", str(tmp_path)]) == 0
    project = tomli.loads((tmp_path / "klamm-mine" / "pyproject.toml").read_text())
    (needed,) = project["project"]["dependencies"]
    assert __version__.startswith(needed.removeprefix("klamm>="))
    written = runpy.run_path(str(tmp_path / "klamm-mine" / "klamm_mine" / "__init__.py"))
    assert written["PLUGIN_API"] == PLUGIN_API
    providers = [*written["klamm_connection_gates"](), *written["klamm_request_filters"]()]
    assert [one.name for one in providers] == ["mine_gate", "mine_filter"]
    assert "python -m pytest" in (tmp_path / "klamm-mine" / ".github" / "workflows" / "tests.yml").read_text()


def test_there_is_a_template_for_every_kind_of_part():
    assert sorted(template.hook for template in KINDS.values()) == sorted(kind.hook for kind in ProviderKind)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "command"])
def test_the_tests_of_a_package_check_the_contract(kind):
    checks = re.findall(r"^    check_(\w+)\(CLASS", KINDS[kind].tests, re.MULTILINE)
    assert checks == [kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_has_all_its_files(tmp_path, kind):
    assert main(["plugins", "new", "klamm-mine", "--kind", kind, "--in", str(tmp_path)]) == 0
    project = tomli.loads((tmp_path / "klamm-mine" / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["klamm"] == {"mine": "klamm_mine"}
    if kind == "command":
        return
    (shown,) = re.findall(r"```toml\n(.*?)```", (tmp_path / "klamm-mine" / "README.md").read_text(), re.DOTALL)
    assert "mine" in shown
    assert tomli.loads(shown)["listeners"]
    text = "".join(file.read_text() for file in (tmp_path / "klamm-mine").rglob("*.py"))
    words = "NAME|MODULE|PART|CLASS|HOOK|FILE|DESCRIPTION|MINIMUM|APIVERSION|SUMMARY|SETTINGS"
    assert not re.search(rf"\b({words})\b", text)


def test_existing_files_are_not_overwritten(tmp_path, capsys):
    assert main(["plugins", "new", "klamm-mine", "--in", str(tmp_path)]) == 0
    assert main(["plugins", "new", "klamm-mine", "--in", str(tmp_path)]) == 2
    assert "exists already; nothing was overwritten" in capsys.readouterr().err
    assert main(["plugins", "new", "My Plugin", "--in", str(tmp_path)]) == 2
    assert '"My Plugin" is not a valid name' in capsys.readouterr().err
