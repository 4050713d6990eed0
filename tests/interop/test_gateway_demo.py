"""Runs the gateway's demo in the way that the README and the documents describe."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers.klamm_server import ROOT, KlammServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]


RUN = [sys.executable, str(ROOT / "examples" / "gateway" / "run.py"), "--once"]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RUN, "--folder", str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        env=KlammServer(folder).environment(),
        check=False,
    )


def test_every_client_of_the_demo_gets_its_expected_result(tmp_path):
    done = run(tmp_path, "--free-ports")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sum(line.startswith("ok     node 1 (127.0.0.1:") for line in lines) == 1, "of klamm doctor"
    steps = [line.split(":")[0] for line in lines if line.startswith("ok     ") and " (" not in line]
    assert {"ok     bob writes to orders", "ok     mallory logs in"} <= set(steps)
    trail = [line for line in lines if " gateway " in line]
    assert any(" Produce " in line and " node=1 remote_ms=" in line for line in trail), done.stdout
    again = run(tmp_path, "--free-ports")
    assert again.returncode == 0, "a folder that has been used: " + again.stdout + again.stderr


def test_the_demo_ends_at_once_if_a_port_is_taken(tmp_path):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 9093))
            taken.listen()
        except OSError:
            pass  # The port is already taken.
        done = run(tmp_path)
    assert done.returncode == 1
    assert "--free-ports" in done.stderr
    assert not (tmp_path / "kafka").exists()
