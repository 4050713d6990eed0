"""The documents' examples work: TOML is valid, Python runs, commands exist, and links have a target.

A block that no test runs has a comment with the reason above it: `<!-- not run: REASON -->`.
"""

import contextlib
import io
import json
import re
import runpy
from collections import Counter
from pathlib import Path

import pytest
import tomli

from klamm.cli.main import main
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry

ROOT = Path(__file__).resolve().parents[3]
PLUGINS = ROOT / "docs" / "plugins"
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "RELEASING.md",
    ROOT / "CODE_OF_CONDUCT.md",
    ROOT / "spark" / "README.md",
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("bench/results/*.md"),
    *ROOT.glob("examples/**/*.md"),
    *ROOT.glob("clients/*/README.md"),
]
# test_plugin_pages.py and test_new_plugin.py build the packages of these pages, and run their tests.
EXAMPLE_PLUGINS = ROOT / "examples" / "plugins"
PACKAGES = {path for path in PLUGINS.glob("*.md") if path.name not in ("README.md", "testing.md")}
BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n+)?^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

REPORT = ROOT / "docs" / "clients" / "librdkafka-restart.md"
"""A program that shows an error of a client: it hangs. tests/unit/testing/test_helpers.py runs it with the remedy."""
TESTS_AND_CLIENTS = {
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("simulation", "start", "testing")),
    REPORT,
}
"""test_testing_page.py runs their tests, and tests/packaging/test_readme.py their clients."""
COMMANDS = {
    "klamm": "test_commands_of_klamm_exist; tests/unit/cli runs them",
    "scripts/": "CI runs them",
    "openssl": "tests/unit/audit/test_timestamps.py runs it",
    "kcat": "tests/packaging/test_readme.py runs the tour",
    "printf": "the same",
    "kafka-": "needs Kafka's tools: tests/interop/test_java_tools.py",
    "pip": "tests/packaging installs wheels",
    "installed/bin/pip": "the same",
    "cyclonedx-py": "tests/packaging/test_licences.py runs it",
    "python": "the tutorial's, which test_plugin_pages.py plays",
    ". venv": "the same",
    "mkdir": "the same",
    "sed": "tests/unit/docs/test_recipes.py runs it",
    "mv new.toml": "the same",
    "cd": "goes before other commands",
    "export": "the same",
    "pytest": "runs tests",
    ".venv/bin/python -m pytest": "the same",
    "KLAMM_COMPILE=1": "scripts/test builds so",
    "spark=": "needs a cluster of Spark: tests/spark/test_cluster.py",
    '"$spark': "the same",
    "aws": "needs an account",
    "python3 -m venv": "needs root",
    "useradd": "the same",
    "tar --": "tests/contract/test_backup.py runs the backup",
    "mv /var/lib/klamm": "the same",
    "systemctl": "the same; tests/contract/test_service_manager.py does what systemd does",
    "podman": "needs an engine: tests/unit/packaging/test_container.py reads its files",
}
"""The tests that run commands of the documents, or the reasons why none does, by the beginning of the command."""


def blocks(language):
    """Yield the fenced blocks of a language, with their document, and the reason if they are not run."""
    for document in DOCUMENTS:
        found = [one for one in BLOCK.findall(document.read_text(encoding="utf-8")) if one[1] == language]
        for number, (reason, _language, block) in enumerate(found, 1):
            yield pytest.param(document, block, reason, id=f"{document.relative_to(ROOT)}-{number}")


def is_of_a_package(document):
    """Return True if the document's plugin is not installed here."""
    return document in PACKAGES or EXAMPLE_PLUGINS in document.parents


def configurations():
    """Return the configurations of servers, except those that name plugins of packages and examples."""
    return [one for one in blocks("toml") if "[listeners." in one.values[1] and not is_of_a_package(one.values[0])]


@pytest.mark.parametrize(("document", "block", "reason"), configurations())
def test_configurations_are_valid(document, block, reason, tmp_path):
    file = tmp_path / f"{document.stem}.toml"
    file.write_text(block, encoding="utf-8")
    assert load_plan(file, PluginRegistry()).listeners


@pytest.mark.parametrize(("document", "block", "reason"), list(blocks("toml")))
def test_toml_can_be_read(document, block, reason):
    assert tomli.loads(block)


@pytest.mark.parametrize(("document", "block", "reason"), list(blocks("json")))
def test_json_can_be_read(document, block, reason):
    assert json.loads(block)


def programs():
    """Return Python programs that no other test runs. Packages, tests of pytest and servers are tested elsewhere."""
    for one in blocks("python"):
        document, block, _reason = one.values
        if not is_of_a_package(document) and "def test_" not in block and "127.0.0.1:9092" not in block:
            yield one


@pytest.mark.parametrize(("document", "block", "reason"), list(programs()))
def test_programs_run(document, block, reason, tmp_path, monkeypatch, capsys):
    # The signature of a hook has no body.
    is_signature = block.rstrip().endswith(":")
    compile(block.rstrip() + "\n    ..." * is_signature, str(document), "exec")
    if not (reason or is_signature):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "program.py").write_text(block, encoding="utf-8")
        runpy.run_path("program.py")


def test_every_program_is_run():
    left = {one.values[0] for one in blocks("python")} - {one.values[0] for one in programs()} - TESTS_AND_CLIENTS
    assert [str(document) for document in left if not is_of_a_package(document)] == []
    for one in blocks("python"):
        document, block, _reason = one.values
        if "def test_" in block or "127.0.0.1:9092" in block:
            assert document in TESTS_AND_CLIENTS or is_of_a_package(document), document


@pytest.mark.parametrize(("document", "block", "reason"), list(blocks("sh")))
def test_every_command_is_run_or_has_a_reason_why_not(document, block, reason):
    for line in block.replace("\\\n", " ").splitlines():
        # An indented line continues the one before it.
        if line and line[0] not in "# " and not is_of_a_package(document):
            assert line.startswith(tuple(COMMANDS)), line


@pytest.mark.parametrize(("document", "block", "reason"), list(blocks("sh")))
def test_commands_of_klamm_exist(document, block, reason):
    for line in block.replace("\\\n", " ").splitlines():
        found = re.match(r"klamm (\w+)(.*?)(?:#|\||>|$)", line.strip())
        if found is None or is_of_a_package(document):
            continue
        command, rest = found[1], found[2]
        known = help_of(command, *re.findall(r"^ (\w+)", rest) if command in ("audit", "users", "plugins") else ())
        for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", rest):
            assert option in known, f"{line}: klamm {command} has no {option}"


def help_of(command, *more):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        main([command, *more, "--help"])
    assert "usage" in said.getvalue(), f"there is no klamm {command}: {said.getvalue()}"
    return said.getvalue()


each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: str(one.relative_to(ROOT)))


def prose(document):
    """Return a document without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(document):
    """Return the anchors of the headings, as GitHub makes them."""
    made = Counter()
    for heading in re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        yield f"{anchor}-{made[anchor]}" if made[anchor] else anchor
        made[anchor] += 1


@each_document
def test_links_have_a_target(document):
    links = [link for link in re.findall(r"\]\(([^)]+)\)", prose(document)) if "://" not in link]
    for link in links:
        file, _, anchor = link.partition("#")
        target = document.parent / file if file else document
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


@each_document
def test_named_files_exist(document):
    folders = "core|plugins|spark|tests|docs|scripts|bench|examples|tools|unit|contract|faults|network|requests|runtime"
    for path in re.findall(rf"`((?:{folders})/[\w./-]+)`", prose(document)):
        assert any((below / path).exists() for below in (ROOT, ROOT / "core" / "klamm", ROOT / "tests")), path


@each_document
def test_named_benchmarks_exist(document):
    for module, rest in re.findall(r"python -m (bench\.\w+)([^`#\n]*)", document.read_text(encoding="utf-8")):
        file = ROOT / f"{module.replace('.', '/')}.py"
        assert file.exists(), module
        code = file.read_text(encoding="utf-8")
        for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", rest):
            assert f'"{option}"' in code, f"{module} has no {option}"
