"""What the documents show is right: TOML that can be served, Python that compiles, links that lead somewhere."""

import re
from pathlib import Path

import pytest

from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    ROOT / "spark" / "README.md",
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("examples/**/*.md"),
]
GUIDE = ROOT / "docs" / "writing-plugins.md"
EXAMPLE_PLUGINS = ROOT / "examples" / "plugins"


def blocks(language):
    """The fenced blocks of a language, with the names of their documents."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        found = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for number, block in enumerate(found, 1):
            yield pytest.param(document, block, id=f"{document.relative_to(ROOT)}-{number}")


def configurations():
    """The files of servers, save those that name plugins: of the guide (test_guide.py), and of examples (packaging)."""
    return [
        one
        for one in blocks("toml")
        if "[listeners." in one.values[1] and one.values[0] != GUIDE and EXAMPLE_PLUGINS not in one.values[0].parents
    ]


@pytest.mark.parametrize(("document", "block"), configurations())
def test_configurations_are_right(document, block, tmp_path):
    file = tmp_path / f"{document.stem}.toml"
    file.write_text(block, encoding="utf-8")
    assert load_plan(file, PluginRegistry()).listeners


@pytest.mark.parametrize(("document", "block"), list(blocks("python")))
def test_programs_compile(document, block):
    # A hook's signature stands alone.
    body = "\n    ..." if block.rstrip().endswith(":") else ""
    compile(block.rstrip() + body, str(document), "exec")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    links = re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (document.parent / link).exists()] == []
