"""An observer as most tests of the audit need it."""

import pytest

from tests.unit.audit.observing import Observing


@pytest.fixture
def audit(tmp_path):
    return Observing(tmp_path)


@pytest.fixture
def make(tmp_path):
    return lambda **settings: Observing(tmp_path, **settings)
