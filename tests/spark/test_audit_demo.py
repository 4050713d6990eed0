"""The demo as its users start it: an attack among good requests, and the report that names it."""

import re
import subprocess
import sys

import pytest

from tests.spark.browser import seen_by
from tests.spark.test_cluster import ROOT, environment

FIRST_SECTION = """
const card = document.querySelector('h2 + .card');
const box = card.getBoundingClientRect();
const texts = (selector, of) => [...of.querySelectorAll(selector)].map(cell => cell.innerText);
const rows = [...card.querySelectorAll('tbody tr')].filter(row => row.getBoundingClientRect().height > 10);
seen = {title: card.querySelector('h3').innerText, heads: texts('th', card), rows: rows.map(row => texts('td', row))};
"""
STAGES = {
    "Password spraying": ("", "127.0.0.66", "secure", "7 accounts tried within 10 minutes"),
    "Login after many failures": ("User:ops", "127.0.0.66", "secure", "failed logins"),
    "Access granted to oneself": ("User:ops", "127.0.0.66", "payroll", "granted READ"),
    "Access granted, then used for a bulk read": (
        "User:ops",
        "127.0.0.66",
        "payroll",
        "granted by User:ops, then read",
    ),
}


@pytest.mark.timeout(400)
def test_the_report_names_the_attack_and_says_what_the_clients_counted(tmp_path):
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

    seen = seen_by(tmp_path / "report.html", FIRST_SECTION, tmp_path, "--window-size=1280,1000")
    assert seen["title"] == "What needs attention?"
    rows = {row[0]: dict(zip(seen["heads"], row, strict=True)) for row in seen["rows"]}
    for title, (account, address, what, detail) in STAGES.items():
        row = rows[title]
        assert (row["who"], row["from"], row["what"]) == (account, address, what)
        assert detail in row["detail"]
    # The gravest stand first; the good clients are not among them.
    assert {row["from"] for row in rows.values() if row["severity"] in ("critical", "high")} == {"127.0.0.66"}
    assert [row[1] for row in seen["rows"][:2]] == ["critical", "critical"]
