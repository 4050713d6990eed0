"""The demo that docs and README name, as its users start it."""

import re
import subprocess
import sys

import pytest

from tests.spark.test_cluster import ROOT, environment


@pytest.mark.timeout(400)
def test_the_report_says_what_the_clients_counted(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "audit" / "run.py"), "--requests", "3000", "--no-browser"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3,000 requests of 7 clients, and 20 wrong passwords" in done.stdout
    compared = re.findall(r"^(plain|secure)\s+(\D+?)\s+([\d,]+)\s+([\d,]+)$", done.stdout, re.MULTILINE)
    assert len(compared) == 10
    assert {(name, counted) for _, name, counted, found in compared if counted == found} >= {
        ("denied", "60"),
        ("authentication failures", "20"),
    }
    page = (tmp_path / "report.html").read_text()
    assert 'data-total="requests"' in page
