"""An observer as most tests of the audit need it."""

import pytest

from tests.unit.audit.observing import Observing, close_files


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
