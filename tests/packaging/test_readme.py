"""Runs the README's tour as a reader pastes it: kcat's lines and Python programs, with a server of this process."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.testing import EmbeddedServer

pytestmark = pytest.mark.interop

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def bootstrap():
    with EmbeddedServer() as server:
        yield server.bootstrap


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_the_tour_with_kcat(bootstrap):
    (tour,) = [block for block in blocks("sh") if "kcat" in block]
    assert "127.0.0.1:9092" in tour
    script = "set -e\n" + tour.replace("127.0.0.1:9092", bootstrap)
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "hello\nworld\n"


def test_the_tour_in_python(bootstrap):
    pytest.importorskip("confluent_kafka")
    (program,) = [block for block in blocks("python") if "confluent_kafka" in block and "def test_" not in block]
    assert "127.0.0.1:9092" in program
    done = subprocess.run(
        [sys.executable, "-c", program.replace("127.0.0.1:9092", bootstrap)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "greetings b'you' b'hello'\n"
