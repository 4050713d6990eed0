"""Tests of a change of the settings of SASL mechanisms while their listener runs."""

import contextlib

import pytest

from klamm.sasl import SaslMechanism
from klamm_sasl.factory import SaslAuthenticatorFactory
from klamm_sasl.sasl_settings import SaslSettings


class Picky(SaslMechanism):
    """A mechanism that raises for the settings "broken", and refuses the settings "later"."""

    def reconfigure(self, settings):
        if settings == "broken":
            raise ValueError(settings)
        if settings != "later":
            self.settings = settings
        return settings != "later"

    def server(self, connection, transport):
        raise AssertionError("no client logs in")


@pytest.mark.parametrize("other", ["broken", "later"])
def test_a_mechanism_that_does_not_take_its_settings_reverts_those_before_it(other):
    mechanisms = Picky("a"), Picky("b"), Picky("c")
    factory = SaslAuthenticatorFactory(SaslSettings(mechanisms=("A", "B", "C")), mechanisms)
    with contextlib.suppress(ValueError):
        assert factory.reconfigure_parts(factory.settings, {"mechanisms": ("new", other, "new")}) is False
    assert [one.settings for one in mechanisms] == ["a", "b", "c"]
    assert factory.reconfigure_parts(factory.settings, {"mechanisms": ("new", "b", "new")}) is True
    assert [one.settings for one in mechanisms] == ["new", "b", "new"]
