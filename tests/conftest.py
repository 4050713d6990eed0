"""Fixtures and options that all tests share."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.shares import is_in_share
from tools.generate_messages import write_between_brokers

# No health check for slow draws, because machines are shared and a slow draw is not a fault of the code.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, database=None)

# Every run on every machine tries the same examples, so that no run fails or passes by luck. A case that other examples
# have found stays as an explicit `@example`. With `--hypothesis-seed` (see scripts/fuzz), a run tries other examples.
settings.register_profile("repeatable", PATIENT, derandomize=True)
settings.register_profile("fresh", PATIENT, derandomize=False)
settings.load_profile("repeatable")

# Tests collect cases from every message, also from messages that git does not keep.
write_between_brokers()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", default="1/1", metavar="K/N", help="run the Kth of N shares of the test files")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.suffix == ".py" and not is_in_share(collection_path, config.getoption("--share", "1/1")):
        return True
    return None


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-seed") is not None:
        settings.load_profile("fresh")
    elif hasattr(providers, "_get_local_constants"):
        # Hypothesis would also draw constants from the source of all modules that are loaded by chance.
        providers._get_local_constants = providers.Constants


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """Return the seed for tests that draw random values. It is the same in every run, unless `--hypothesis-seed` is
    given.
    """
    return int(pytestconfig.getoption("--hypothesis-seed") or 1)


PROGRAMS = ("java", "javac", "mvn", "kcat")
"""Programs that tests start and that are not part of klamm. If one is not installed, its tests are skipped; in CI they
fail.
"""


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
