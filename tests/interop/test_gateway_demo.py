"""The demo of the gateway that README and docs name, as its users start it."""

import subprocess
import sys

import pytest

from tests.peers.klamm_server import ROOT, KlammServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]


def test_every_client_gets_what_it_should(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "gateway" / "run.py"), "--once", "--free-ports"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
        env=KlammServer(tmp_path).environment(),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sum(line.startswith("ok     node 1 (127.0.0.1:") for line in lines) == 1, "of klamm doctor"
    steps = [line.split(":")[0] for line in lines if line.startswith("ok     ") and " (" not in line]
    assert {"ok     bob writes to orders", "ok     mallory logs in"} <= set(steps)
    trail = [line for line in lines if " gateway " in line]
    assert any(" Produce " in line and " node=1 remote_ms=" in line for line in trail), done.stdout
