"""Fixtures: an observer of the audit, in the form that most tests need."""

import re
from pathlib import Path

import pytest

from tests.unit.audit.observing import Observing, close_files

OF_THE_SERVER = re.compile(
    r"^\s*(?:from|import) (?:klamm|klamm_(?!spark)\w+|tests\.unit\.(?!audit\.test_)[\w.]+)\b(?!_)", re.MULTILINE
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests in files that import only the audit's own package as `uncompiled`, because it is never compiled."""
    apart = {
        path
        for path in {item.path for item in items if Path(__file__).parent in item.path.parents}
        if not OF_THE_SERVER.search(path.read_text(encoding="utf-8"))
    }
    for item in items:
        if item.path in apart:
            item.add_marker(pytest.mark.uncompiled)


@pytest.fixture
def audit(tmp_path):
    return Observing(tmp_path)


@pytest.fixture
def make(tmp_path):
    return lambda **settings: Observing(tmp_path, **settings)


@pytest.fixture(autouse=True)
def closed_files():
    yield
    close_files()
