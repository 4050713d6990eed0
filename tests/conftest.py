"""What all tests share."""

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# Machines are shared: a slow draw is no fault of the code.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

PROGRAMS = ("java", "javac", "mvn", "kcat")
"""What tests start that is no part of klamm; where one is not installed, they are skipped, but in CI they fail."""


def _skipping() -> Generator[None, object, object]:
    try:
        return (yield)
    except FileNotFoundError as error:
        if error.filename in PROGRAMS and not os.environ.get("CI"):
            pytest.skip(f"{error.filename} is not installed")
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    return (yield from _skipping())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    return (yield from _skipping())
