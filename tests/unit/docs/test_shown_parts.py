"""Parts in single blocks of the documents obey their contracts."""

import re
import runpy
from pathlib import Path

import pytest

from klamm import ConnectionGate, RequestFilter
from klamm.acl import Authorizer
from klamm.testing import check_authorizer, check_filter, check_gate

DOCS = Path(__file__).resolve().parents[3] / "docs"
CHECKS = {Authorizer: check_authorizer, RequestFilter: check_filter, ConnectionGate: check_gate}
SHOWN = {
    ("authorization.md", Authorizer),
    ("hooks.md", RequestFilter),
    ("metrics.md", ConnectionGate),
    ("plugins/filter.md", RequestFilter),
}


@pytest.mark.parametrize(("page", "contract"), sorted(SHOWN, key=str))
def test_a_part_that_a_page_shows_obeys_its_contract(tmp_path, page, contract):
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    # The last block of a page about plugins shows a package, which has its own tests.
    block = next(one for one in blocks if f"({contract.__name__}):" in one)
    (tmp_path / "shown.py").write_text(block, encoding="utf-8")
    made = [
        value
        for value in runpy.run_path(str(tmp_path / "shown.py")).values()
        if isinstance(value, type) and issubclass(value, contract) and value is not contract
    ]
    assert made
    for each in made:
        CHECKS[contract](each)
