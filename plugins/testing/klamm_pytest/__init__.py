"""The pytest plugin of klamm: fixtures with a broker, loaded by pytest in every run.

klamm's own modules are imported only when a test first uses a fixture.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shlex
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from klamm.testing import Admin, EmbeddedServer, SecureServer, SimulatedServer

_MARK = "klamm"
_CHAOS_MARK = "klamm_chaos"
_SETTINGS = "klamm_settings"
_FIXTURES = frozenset({"klamm_broker", "klamm_server", "klamm_secure", "klamm_topic", "klamm_admin"})
_SECTION = "klamm: timeline"
_SEED_OPTION = "--klamm-seed"
_SEED_SECTION = "klamm: seed"
_SEED_BITS = 31
_FOLDER_OPTION = "--klamm-timeline"
_COLUMNS = 80
_FOLDER = "klamm-timeline"
_NAME_CHARACTERS = 100
_DIGEST_CHARACTERS = 8

# The servers that the tests of this process share. A marked test has its own server in its stash under `_own`.
_shared: list[Any] = []
_own = pytest.StashKey[Any]()
_seed = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option `klamm_settings` and the options `--klamm-timeline` and `--klamm-seed`."""
    parser.addini(_SETTINGS, "Settings of the tests' brokers: KEY=VALUE, one per line.", type="linelist", default=[])
    parser.getgroup("klamm").addoption(
        _FOLDER_OPTION, metavar="DIR", help="Folder for the timelines of failed tests, one page each."
    )
    parser.getgroup("klamm").addoption(
        _SEED_OPTION,
        type=int,
        metavar="N",
        help="Seed of simulated servers, and of the random numbers of the other brokers.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and exempt klamm's modules from pytest's rewriting of asserts, which would take two
    seconds.
    """
    _rewrite_no_asserts_of_klamm(config)
    config.addinivalue_line(
        "markers",
        f"{_MARK}(*settings, **options): this test's fixture `klamm_broker` is its own broker, with settings"
        " KEY=VALUE and the options of klamm.testing.EmbeddedServer; `klamm_simulation` takes the settings and `seed`.",
    )
    config.addinivalue_line(
        "markers",
        f"{_CHAOS_MARK}(seed=0, times=1): this test's broker has a fault of every kind, each at random with a small"
        " probability, which `times` multiplies; the same seed gives the same faults again.",
    )


def _rewrite_no_asserts_of_klamm(config: pytest.Config) -> None:
    # pytest rewrites the asserts of all modules of a distribution that has a plugin, and has no option to prevent it.
    hook = getattr(config.pluginmanager, "rewrite_hook", None)
    marked, decided = (getattr(hook, name, None) for name in ("_must_rewrite", "_marked_for_rewrite_cache"))
    if isinstance(marked, set) and isinstance(decided, dict):
        marked.difference_update([name for name in marked if name.startswith("klamm")])
        decided.clear()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test with a marker that would have no effect."""
    names: list[str] = getattr(item, "fixturenames", [])
    if item.get_closest_marker(_CHAOS_MARK) is not None and _FIXTURES.isdisjoint(names):
        pytest.fail(f"the marker {_CHAOS_MARK} is for tests that use a fixture with a broker", pytrace=False)
    if item.get_closest_marker(_MARK) is None:
        return
    if "klamm_server" in names and "klamm_broker" not in names:
        pytest.fail(
            "the marker klamm makes a broker for the fixture `klamm_broker`; this test uses `klamm_server`",
            pytrace=False,
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Add the faults of the marker `klamm_chaos` once the fixtures are set up."""
    mark = item.get_closest_marker(_CHAOS_MARK)
    if mark is None:
        return
    for server in _servers_of(item):
        server.faults.chaos(*mark.args, **{"seed": 0, **mark.kwargs})


def _servers_of(item: pytest.Item) -> list[Any]:
    """Return the brokers that a test may use: its own one, or else all shared ones."""
    own = item.stash.get(_own, None)
    return _shared if own is None else [own]


@pytest.fixture(scope="session")
def klamm_server(pytestconfig: pytest.Config) -> Iterator[EmbeddedServer]:
    """A broker that all tests of this process share: a `klamm.testing.EmbeddedServer` with faults and recording."""
    from klamm.testing import EmbeddedServer

    seed = pytestconfig.getoption(_SEED_OPTION)
    with EmbeddedServer(pytestconfig.getini(_SETTINGS), faults=True, recording=True, seed=seed) as server:
        _shared.append(server)
        yield server
        _shared.remove(server)


@pytest.fixture(scope="session")
def klamm_secure(pytestconfig: pytest.Config) -> Iterator[SecureServer]:
    """A broker with TLS, SCRAM and ACLs that all tests of this process share: a `klamm.testing.SecureServer`."""
    from klamm.testing import SecureServer

    seed = pytestconfig.getoption(_SEED_OPTION)
    with SecureServer(pytestconfig.getini(_SETTINGS), faults=True, recording=True, seed=seed) as server:
        _shared.append(server)
        yield server
        _shared.remove(server)


@pytest.fixture
def klamm_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """Return the broker of this test: `klamm_server`, or a separate broker if the test has the marker `klamm`."""
    mark = request.node.get_closest_marker(_MARK)
    if mark is None:
        yield request.getfixturevalue("klamm_server")
        return
    from klamm.testing import EmbeddedServer

    settings = [*request.config.getini(_SETTINGS), *mark.args]
    options = {"faults": True, "recording": True, **mark.kwargs}
    seed = request.config.getoption(_SEED_OPTION)
    with EmbeddedServer(settings, **(options if seed is None else options | {"seed": seed})) as server:
        request.node.stash[_own] = server
        yield server


@pytest.fixture
def klamm_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of this test: of `--klamm-seed`, of the marker `klamm(seed=…)`, or a new one.

    A test that fails prints it, with the command that repeats the test.
    """
    mark = request.node.get_closest_marker(_MARK)
    asked = (request.config.getoption(_SEED_OPTION), None if mark is None else mark.kwargs.get("seed"))
    seed = next((each for each in asked if each is not None), None)
    if seed is None:
        seed = secrets.randbits(_SEED_BITS)
    request.node.stash[_seed] = seed
    return int(seed)


@pytest.fixture
def klamm_simulation(klamm_seed: int, request: pytest.FixtureRequest) -> Iterator[SimulatedServer]:
    """Return a `klamm.testing.SimulatedServer` of this test, with the settings of the marker `klamm`."""
    from klamm.testing import SimulatedServer

    mark = request.node.get_closest_marker(_MARK)
    settings = [*request.config.getini(_SETTINGS), *(() if mark is None else mark.args)]
    with SimulatedServer(settings, seed=klamm_seed) as server:
        yield server


@pytest.fixture
def klamm_topic(klamm_broker: EmbeddedServer, request: pytest.FixtureRequest) -> str:
    """Return the name of a new topic with one partition for this test. The name begins with the test's name."""
    chance = klamm_broker.server.services.random_bytes(4).hex()
    return klamm_broker.create_topic(f"{_file_name(request.node.name)}-{chance}")


@pytest.fixture
def klamm_admin(klamm_broker: EmbeddedServer) -> Admin:
    """Return a `klamm.testing.Admin`, which handles topics, records and groups without a client library."""
    return klamm_broker.admin


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Remove the faults after each test, and clear the recording."""
    for server in _shared:
        server.faults.clear()
        server.forget()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add a timeline of the broker, and the seed, to the report of a failed test."""
    report = yield
    seed = item.stash.get(_seed, None)
    if report.failed and seed is not None:
        again = f"python -m pytest {shlex.quote(item.nodeid)} {_SEED_OPTION} {seed}"
        report.sections.append((_SEED_SECTION, f"seed {seed}; again: {again}"))
    if call.when != "teardown" and report.failed and not _FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        columns = max(_COLUMNS, shutil.get_terminal_size().columns)
        reason = call.excinfo.exconly().partition("\n")[0] if call.excinfo is not None else "failed"
        for number, server in enumerate(_servers_of(item)):
            timeline = server.timeline(item.nodeid, failure=f"the test failed: {reason}")
            if timeline:
                try:
                    page = str(_write_page(item, timeline.html(), number))
                except OSError as error:
                    page = f"its page cannot be written: {error}"
                report.sections.append((_SECTION, f"{timeline.text(columns)}\n{page}"))
    return report


def _write_page(item: pytest.Item, page: str, number: int) -> Path:
    """Write the page of a timeline, and return the file.

    The folder is given by `--klamm-timeline`. Otherwise it is in the folder of the JUnit file, or in pytest's temporary
    folder.
    """
    config = item.config
    folder = config.getoption(_FOLDER_OPTION)
    junit = config.getoption("xmlpath", None)
    if folder is None and junit is None:
        factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
        folder = factory.getbasetemp() / _FOLDER
    folder = Path(folder or Path(junit).parent / _FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(item.nodeid.encode("utf-8", "backslashreplace")).hexdigest()[:_DIGEST_CHARACTERS]
    name = f"{_file_name(item.name)}-{digest}{f'-{number}' if number else ''}.html"
    file = (folder / name).resolve()
    file.write_text(page, encoding="utf-8", errors="backslashreplace")
    return file


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:_NAME_CHARACTERS].strip("-")
