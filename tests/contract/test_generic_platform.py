"""klamm does its work with the fallbacks that other systems take (`KLAMM_PLATFORM=generic`); see docs/platforms.md."""

import os
import subprocess
import sys

import pytest

from tests.contract.source_rules import ROOT

CORE = (
    "tests/unit/testing/test_embedded.py",
    "tests/unit/testing/test_groups.py",
    "tests/unit/testing/test_helpers.py",
    "tests/unit/network/test_acceptor.py",
    "tests/unit/network/test_poller.py",
    "tests/unit/log/test_compaction.py",
    "tests/unit/log/test_manager.py",
    "tests/contract/test_gateway_fetch.py",
    "tests/contract/test_gateway_pressure.py",
    "tests/contract/test_unix_sockets.py",
)
SUITES = (
    "tests/contract",
    "tests/faults",
    "tests/interop",
    "tests/unit/log",
    "tests/unit/network",
    "tests/unit/testing",
)


def run(*tests, within_s):
    """Run test files with `KLAMM_PLATFORM=generic`, each file in one process."""
    command = [sys.executable, "-m", "pytest", *tests, "-q", "-p", "no:cacheprovider", "-m", "not slow and not once"]
    environment = os.environ | {"KLAMM_PLATFORM": "generic"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=within_s)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.once
def test_a_broker_and_a_gateway_work_with_every_fallback():
    run(*CORE, within_s=280)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("suite", SUITES)
def test_a_whole_suite_passes_with_every_fallback(suite):
    run(suite, within_s=7000)
