"""The fixture of a `LaterAuthorizer`."""

import pytest

from tests.unit.authorizers.later import Opened


@pytest.fixture
def opened():
    made = []

    def make(**settings):
        made.append(Opened(**settings))
        return made[-1]

    yield make
    for one in made:
        one.policy.go_on.set()
        one.policy.close()
