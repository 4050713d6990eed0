"""What the documents show works: their TOML is accepted, their Python runs, their links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.config.plan import load_plan
from klamm.plugins import PluginRegistry

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#([^)\s]+))?\)")


def blocks(document, language):
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def listeners_of(document):
    """The TOML blocks that configure a server with klamm's own plugins."""
    return [block for block in blocks(document, "toml") if "[listeners." in block]


@pytest.mark.parametrize("name", ["README.md", "docs/configuration.md"])
def test_toml_examples_are_right(name, tmp_path):
    examples = listeners_of(ROOT / name)
    assert examples
    for number, example in enumerate(examples):
        file = tmp_path / f"example-{number}.toml"
        file.write_text(example)
        assert load_plan(file, PluginRegistry()).listeners


def test_the_plugin_of_the_guide_works(tmp_path):
    """Its blocks, put into the files that they name, pass the tests that the guide shows."""
    for block in blocks(ROOT / "docs" / "writing-plugins.md", "python"):
        name = re.match(r"# ([\w/]+\.py)", block)
        assert name, block
        file = tmp_path / name[1]
        file.parent.mkdir(exist_ok=True)
        with file.open("a") as out:
            out.write(block)
    code = (
        f"import sys; sys.path[:0] = {[str(tmp_path), *sys.path]!r}; import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", "/dev/null"]
        + [str(tmp_path / "test_clock.py")],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    for target, _ in LINK.findall(document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target
