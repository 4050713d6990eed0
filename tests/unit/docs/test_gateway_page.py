"""docs/gateway.md explains each reason for the end of a connection to a node."""

import re
from pathlib import Path

from klamm_gateway.upstream.connection import INTERNAL_ERROR

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_has_exactly_the_reasons_of_the_code():
    page = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
    table = re.search(r"^\| reason \| meaning \|\n(.*?)\n\n", page, re.MULTILINE | re.DOTALL)[1]
    rows = table.splitlines()[1:]
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "plugins/apis/klamm_gateway").rglob("*.py"))
    reasons = set(re.findall(r'UpstreamError\(\s*"(\w+)"', code)) | {INTERNAL_ERROR, "tls_failed", "connection_lost"}
    assert {reason for row in rows for reason in re.findall(r"`(\w+)`", row.split("|")[1])} == reasons
