"""Tests in Go move from Testcontainers to klamm, and back, by the path that they import.

Slow: `pytest -m slow -s tests/interop/test_testcontainers_go.py`. Needs Go and, once, the network: a Go module carries
its tests. A test that moves back to Testcontainers is only compiled, because that needs no engine for containers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klamm import __version__
from tests.interop.test_franz_go_suite import go

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(1500)]

ROOT = Path(__file__).resolve().parents[2]
THEIRS = "github.com/testcontainers/testcontainers-go/modules/kafka"
MODULE = "klamm.example/klamm/testcontainers"
OURS = f"{MODULE}/kafka"
VERSIONS = ("v0.40.0", "v0.42.0")
"""The differences: types of ports, and of a state."""
ONLY_CONTAINERS = "\tassertAdvertisedListeners(t, kafkaContainer)\n"
"""A line of Testcontainers' test, which reads a script in the container."""


@pytest.fixture(autouse=True)
def _go_is_here() -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")


def copy(source: Path, target: Path, before: str, after: str) -> None:
    """Copy a program, and replace the path of the package."""
    text = source.read_text(encoding="utf-8")
    assert text.count(f'"{before}"') == 1, source
    target.write_text(text.replace(f'"{before}"', f'"{after}"').replace(ONLY_CONTAINERS, ""), encoding="utf-8")


@pytest.mark.parametrize("version", VERSIONS)
def test_testcontainers_own_tests_pass_on_klamm(version: str, tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module moved.example\n")
    found = json.loads(go("mod", "download", "-json", f"{THEIRS}@{version}", cwd=tmp_path, timeout_s=300))
    for name in ("examples_test.go", "kafka_test.go"):
        copy(Path(found["Dir"]) / name, tmp_path / name, THEIRS, OURS)
    for name in ("consumer_test.go", "go.mod", "go.sum"):
        shutil.copyfile(Path(found["Dir"]) / name, tmp_path / name)
    places = {"klamm.example/klamm": ROOT / "clients/go", MODULE: ROOT / "clients/go/testcontainers"}
    replaced = (f"-replace={name}={folder}" for name, folder in places.items())
    required = f"-require={MODULE}@v{__version__}"
    go(
        "mod",
        "edit",
        f"-dropreplace={THEIRS[: -len('/modules/kafka')]}",
        required,
        *replaced,
        cwd=tmp_path,
        timeout_s=60,
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KLAMM": f"{sys.executable} -m klamm"}
    command = ["go", "test", "-mod=mod", "-v", "-vet=off", "-run=^(ExampleRun|TestKafka)$", "."]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"--- PASS: TestKafka", "--- PASS: ExampleRun"} <= {line.split(" (")[0] for line in done.stdout.splitlines()}


def test_the_example_compiles_with_testcontainers_again(tmp_path: Path) -> None:
    example = ROOT / "examples" / "testing" / "go-testcontainers"
    copy(example / "orders_test.go", tmp_path / "orders_test.go", OURS, THEIRS)
    for name in ("go.mod", "go.sum"):
        shutil.copy(example / name, tmp_path)
    gone = (f"-{what}={name}" for what in ("droprequire", "dropreplace") for name in ("klamm.example/klamm", MODULE))
    go("mod", "edit", *gone, cwd=tmp_path, timeout_s=60)
    go("get", f"{THEIRS}@{VERSIONS[0]}", cwd=tmp_path, timeout_s=400)
    go("vet", "-mod=mod", ".", cwd=tmp_path, timeout_s=600)
