"""Each unreleased change is a file of its own, which towncrier adds to the change log."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TOWNCRIER = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
FRAGMENTS = ROOT / TOWNCRIER["directory"]
KINDS = [kind["directory"] for kind in TOWNCRIER["type"]]


def problems(path, text):
    """Return the problem of a fragment, or None."""
    name = re.fullmatch(r"[a-z0-9-]+\.([a-z]+)\.md", path.name)
    if name is None or name[1] not in KINDS:
        return f"{path.name}: NAME.KIND.md, and KIND is one of {', '.join(KINDS)}"
    if not text.strip() or text.lstrip().startswith(("#", "-", "*")):
        return f"{path.name}: a sentence, without a heading or a bullet"
    return None


def test_fragments_are_sentences_of_a_known_kind():
    others = {*TOWNCRIER["ignore"], Path(TOWNCRIER["template"]).name}
    assert others <= {path.name for path in FRAGMENTS.iterdir()}
    found = [path for path in FRAGMENTS.iterdir() if path.name not in others]
    assert [found for path in found if (found := problems(path, path.read_text(encoding="utf-8")))] == []


def test_problems_of_a_fragment_are_found():
    assert problems(Path("share-limits.added.md"), "Share groups have limits.") is None
    assert "KIND is one of" in problems(Path("share-limits.new.md"), "Share groups have limits.")
    assert "KIND is one of" in problems(Path("Share limits.md"), "Share groups have limits.")
    assert "without a heading or a bullet" in problems(Path("share-limits.added.md"), "- Share groups have limits.")
    assert "without a heading or a bullet" in problems(Path("share-limits.added.md"), "\n")


def test_the_page_of_fragments_lists_the_kinds():
    assert re.findall(r"^\| `(\w+)` \|", (FRAGMENTS / "README.md").read_text(encoding="utf-8"), re.MULTILINE) == KINDS


def test_the_change_log_has_a_place_for_fragments():
    log = (ROOT / TOWNCRIER["filename"]).read_text(encoding="utf-8")
    assert log.count("<!-- towncrier release notes start -->") == 1
