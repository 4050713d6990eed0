"""The packages for Go, Node and the JVM pass their tests, and so do those in examples/testing with real clients.

A package is skipped with a reason if its tools are missing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from klamm import __version__

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns("node_modules", "target", "package-lock.json")


class Run(NamedTuple):
    """A command in a folder. `fetch` gets its packages, which requires a network the first time."""

    tool: str
    folder: str
    fetch: tuple[str, ...]
    test: tuple[str, ...]


_GO_TEST = ("go", "test", "-count=1", "./...")
_UNREACHABLE = re.compile("Could not (resolve|transfer)|Non-resolvable")
RUNS = {
    "go": Run("go", "clients/go", (), _GO_TEST),
    "go-example": Run("go", "examples/testing/go", ("go", "mod", "download"), _GO_TEST),
    "go-testcontainers": Run("go", "clients/go/testcontainers", ("go", "mod", "download"), _GO_TEST),
    "go-testcontainers-example": Run("go", "examples/testing/go-testcontainers", ("go", "mod", "download"), _GO_TEST),
    "node": Run("npm", "clients/node", (), ("npm", "test")),
    "node-example": Run(
        "npm",
        "examples/testing/node",
        ("npm", "install", "--no-audit", "--no-fund", "--prefer-offline"),
        ("npm", "test"),
    ),
    # One run of Maven tests both, because Maven fetches packages during the run.
    "java": Run("mvn", "clients", (), ("mvn", "-q", "-B", "test")),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the parent of copies of the folders. Builds may write to these copies."""
    folder = tmp_path_factory.mktemp("languages")
    for name in ("clients", "examples/testing"):
        shutil.copytree(ROOT / name, folder / name, ignore=LEFT_OUT)
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_the_tests_of_a_language_pass(name: str, folder: Path) -> None:
    found = RUNS[name]
    if shutil.which(found.tool) is None:
        pytest.skip(f"{found.tool} is not installed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KLAMM": f"{sys.executable} -m klamm"}

    def run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=folder / found.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    if found.fetch:
        fetched = run(found.fetch)
        if fetched.returncode:
            pytest.skip(f"{' '.join(found.fetch)} fails: {(fetched.stdout + fetched.stderr)[-500:]}")
    done = run(found.test)
    if done.returncode and found.tool == "mvn" and (reason := _UNREACHABLE.search(done.stdout)):
        pytest.skip(f"Maven cannot get its packages: {done.stdout[reason.start() :][:500]}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_packages_have_the_version_of_klamm() -> None:
    """A client runs this version with uvx or pipx."""
    for file, pattern in {
        "clients/go/klamm.go": r'const Version = "(.*)"',
        "clients/go/testcontainers/go.mod": r"klamm.example/klamm v(.*)",
        "clients/node/index.js": r'VERSION = "(.*)"',
        "clients/node/package.json": r'"version": "(.*)"',
        "clients/java/pom.xml": r"<artifactId>klamm-junit</artifactId>\s*<version>(.*)</version>",
        "clients/java/src/main/java/klamm/Broker.java": r'VERSION = "(.*)"',
    }.items():
        assert re.search(pattern, (ROOT / file).read_text(encoding="utf-8"))[1] == __version__, file
