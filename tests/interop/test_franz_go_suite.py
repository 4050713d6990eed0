"""franz-go's own tests of groups, transactions and share groups.

Slow: `pytest -m slow -s tests/interop/test_franz_go_suite.py`; `KLAMM_INTEROP_TARGET` is klamm, kafka or gateway.
Needs Go and, once, the network: a Go module carries its tests. `KLAMM_FRANZ_GO_RECORDS` is the count of records that
each chain of groups passes on; franz-go's own default is 500,000.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.peers.builds import cached
from tests.peers.target import target_server

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(1500)]

MODULE = "github.com/twmb/franz-go"
VERSION = "v1.22.2"
RECORDS = os.environ.get("KLAMM_FRANZ_GO_RECORDS", "20000")
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
PASSING = 460
BUILD_S = 600
RUN_S = 800


def go(*arguments: str, cwd: Path, timeout_s: float) -> str:
    """Run Go and return its standard output. Raises AssertionError with all its output if it fails."""
    done = subprocess.run(["go", *arguments], cwd=cwd, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def package(folder: Path) -> Path:
    """Return the folder of the sources of the package kgo, which some tests read."""
    (folder / "go.mod").write_text("module franz.example\n")
    module = json.loads(go("mod", "download", "-json", f"{MODULE}@{VERSION}", cwd=folder, timeout_s=300))["Dir"]
    return Path(module) / "pkg" / "kgo"


def program(source: Path) -> Path:
    """Return the program of the tests, built once."""

    def build(folder: Path) -> Path:
        go("test", "-c", "-vet=off", "-o", str(folder / "tests"), ".", cwd=source, timeout_s=BUILD_S)
        return folder / "tests"

    return cached(f"franz-go-tests-{VERSION}", build)


def outcomes(output: str) -> dict[str, str]:
    """Return the outcome of each test and subtest: PASS, FAIL or SKIP."""
    found = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) >= 3 and words[0] == "---" and words[1] in ("PASS:", "FAIL:", "SKIP:"):
            found[words[2]] = words[1][:-1]
    return found


def test_franz_go_passes_its_own_tests(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    source = package(tmp_path)
    with target_server(tmp_path / "server", SETTINGS) as server:
        environment = {
            **os.environ,
            "KGO_SEEDS": server.bootstrap,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": RECORDS,
            "KGO_TEST_UNSAFE": "1",
            "KGO_LOG_LEVEL": "none",
        }
        command = [str(program(source)), "-test.v", f"-test.timeout={RUN_S}s"]
        done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, timeout=RUN_S + 60)
    found = outcomes(done.stdout)
    print(dict(Counter(found.values())))
    failed = sorted(name for name, outcome in found.items() if outcome == "FAIL")
    output = (done.stdout + done.stderr)[-20_000:]
    assert not failed, f"{failed}\n{output}"
    assert done.returncode == 0, output
    assert list(found.values()).count("PASS") >= PASSING, output
