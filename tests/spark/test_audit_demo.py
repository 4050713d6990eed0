"""Runs the demo as its users start it: an attack among normal requests, and the report that names the attack."""

import re
import subprocess
import sys

import pytest

from tests.spark.browser import seen_by
from tests.spark.test_cluster import ROOT, environment

FINDINGS = """
const text = (of, what) => of.querySelector(what).innerText;
seen = [...document.querySelectorAll('.finding')].map(
  card => [text(card, '.head strong').toLowerCase(), text(card, '.head span'), text(card, '.sentence')]);
"""
STAGES = {
    "Password spraying": "127.0.0.66 tried the passwords of several accounts: 7 accounts",
    "Login after many failures": "User:ops logged in from 127.0.0.66 after ",
    "Access granted to oneself": "User:ops gave itself access to payroll: granted READ, from 127.0.0.66 by listener",
    "Access granted, then used for a bulk read": "User:ops read ",
}


@pytest.mark.timeout(1000)
def test_the_report_names_the_attack_and_says_what_the_clients_counted(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "audit" / "run.py"), "--requests", "3000", "--no-browser"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=900,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3,000 requests of 7 clients, and an attack" in done.stdout
    compared = re.findall(r"^(plain|secure)\s+(\D+?)\s+([\d,]+)\s+([\d,]+)$", done.stdout, re.MULTILINE)
    assert len(compared) == 10
    assert {(name, counted) for _, name, counted, found in compared if counted == found} >= {
        ("denied", "60"),
        ("authentication failures", "22"),
    }
    latencies = re.findall(r"^  (\w+) +([\d.]+)$", done.stdout, re.MULTILINE)
    assert len(latencies) == len(STAGES)
    assert all(float(seconds) < 30 for _, seconds in latencies)

    seen = seen_by(tmp_path / "report.html", FINDINGS, tmp_path)
    sentences = {title: sentence for _, title, sentence in seen}
    for title, sentence in STAGES.items():
        assert sentences[title].startswith(sentence)
    assert " of payroll " in sentences["Access granted, then used for a bulk read"]
    # The most severe findings come first. Normal clients have none.
    assert all("127.0.0.66" in sentence for severity, _, sentence in seen if severity in ("critical", "high"))
    assert [severity for severity, *_ in seen[:2]] == ["critical", "critical"]
