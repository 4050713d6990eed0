"""Tests of docs/plugins: the tutorial's package passes its tests, each kind has a page, generated parts are current."""

import os
import re
import subprocess
import sys

import pytest

import klamm.testing
from klamm.api.contracts import contract_of
from klamm.api.provider import ProviderKind
from klamm.cli.templates import KINDS
from tools import generate_plugin_pages

PAGES = generate_plugin_pages.FOLDER
INDEX = (PAGES / "README.md").read_text(encoding="utf-8")
TUTORIAL = (PAGES / "tutorial.md").read_text(encoding="utf-8")
FILES = re.findall(r"^```\w+\n# (\S+\.\w+)\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)


def test_the_package_of_the_tutorial_passes_its_tests(tmp_path):
    for name, text in FILES:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "tests"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_tutorial_is_short():
    assert [name for name, _ in FILES] == [
        "pyproject.toml",
        "klamm_sqlite/__init__.py",
        "klamm_sqlite/store.py",
        "tests/test_store.py",
        "klamm.toml",
    ]
    assert len(dict(FILES)["klamm_sqlite/store.py"].splitlines()) < 75


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_part_has_a_page(kind):
    path = generate_plugin_pages.page_of(kind)
    text = path.read_text(encoding="utf-8")
    assert text == generate_plugin_pages.page(kind), "run python tools/generate_plugin_pages.py"
    assert f"]({path.name}) | `{kind}` |" in INDEX
    written = text.partition(generate_plugin_pages.MARK)[0]
    assert f"(../hooks.md#{KINDS[kind].hook})" in written
    assert "**Threads**" in written
    assert "**Errors**" in written
    contract = contract_of(ProviderKind(KINDS[kind].hook))
    if contract is not None:
        assert f"{contract.__name__}`" in written
        assert f"`check_{kind}(" in written


def test_every_conformance_suite_is_in_the_table():
    table = re.findall(r"^\| `(check_\w+)` \|", (PAGES / "testing.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(table) == sorted(name for name in klamm.testing.__all__ if name.startswith("check_"))


def test_the_page_quotes_what_the_suite_prints(capsys):
    page = (PAGES / "testing.md").read_text(encoding="utf-8")
    block = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    exec(block, {"__name__": "program"})
    said = " ".join(re.search(r"That prints: \*(.*?)\*\.", page, re.DOTALL)[1].split())
    assert capsys.readouterr().out.strip().replace("program.", "…") == said
