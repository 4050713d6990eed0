"""The pytest plugin of klamm: fixtures with a broker. Nothing of klamm is imported until a test uses one of them."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from klamm.testing import Admin, EmbeddedServer, SecureServer

_MARK = "klamm"
_SETTINGS = "klamm_settings"
_FIXTURES = frozenset({"klamm_broker", "klamm_server", "klamm_secure", "klamm_topic", "klamm_admin"})
_SHOWN = 50
_SHOWN_CHARACTERS = 500
_SHOWN_KEYS = ("api", "version", "client_id", "connection_id", "outcome", "error_code", "request", "response")

# The servers of this process that tests share, and the one that a marked test has for itself.
_shared: list[Any] = []
_own = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini option `klamm_settings`."""
    parser.addini(_SETTINGS, "Settings of the brokers of tests, KEY=VALUE, one a line.", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """The marker `klamm`; and no rewriting of klamm's modules, which would cost a session two seconds."""
    _rewrite_no_asserts_of_klamm(config)
    config.addinivalue_line(
        "markers",
        f"{_MARK}(*settings, **options): this test's fixture `klamm_broker` is a broker of its own, with settings"
        " KEY=VALUE and the options of klamm.testing.EmbeddedServer.",
    )


def _rewrite_no_asserts_of_klamm(config: pytest.Config) -> None:
    # pytest rewrites the asserts of all modules of a distribution that has a plugin, and has no option against it.
    hook = getattr(config.pluginmanager, "rewrite_hook", None)
    marked, decided = (getattr(hook, name, None) for name in ("_must_rewrite", "_marked_for_rewrite_cache"))
    if isinstance(marked, set) and isinstance(decided, dict):
        marked.difference_update([name for name in marked if name.startswith("klamm")])
        decided.clear()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a marker that would have no effect."""
    if item.get_closest_marker(_MARK) is None:
        return
    names: list[str] = getattr(item, "fixturenames", [])
    if "klamm_server" in names and "klamm_broker" not in names:
        pytest.fail(
            "the marker klamm makes a broker for the fixture `klamm_broker`; this test uses `klamm_server`",
            pytrace=False,
        )


@pytest.fixture(scope="session")
def klamm_server(pytestconfig: pytest.Config) -> Iterator[EmbeddedServer]:
    """A broker that all tests of this process share: a `klamm.testing.EmbeddedServer` with faults and recording."""
    from klamm.testing import EmbeddedServer

    with EmbeddedServer(pytestconfig.getini(_SETTINGS), faults=True, recording=True) as server:
        _shared.append(server)
        yield server
        _shared.remove(server)


@pytest.fixture(scope="session")
def klamm_secure(pytestconfig: pytest.Config) -> Iterator[SecureServer]:
    """A broker with TLS, SCRAM and ACLs that all tests of this process share: a `klamm.testing.SecureServer`."""
    from klamm.testing import SecureServer

    with SecureServer(pytestconfig.getini(_SETTINGS), faults=True, recording=True) as server:
        _shared.append(server)
        yield server
        _shared.remove(server)


@pytest.fixture
def klamm_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """The broker of this test: `klamm_server`, or, with the marker `klamm`, one of its own."""
    mark = request.node.get_closest_marker(_MARK)
    if mark is None:
        yield request.getfixturevalue("klamm_server")
        return
    from klamm.testing import EmbeddedServer

    settings = [*request.config.getini(_SETTINGS), *mark.args]
    with EmbeddedServer(settings, **{"faults": True, "recording": True, **mark.kwargs}) as server:
        request.node.stash[_own] = server
        yield server


@pytest.fixture
def klamm_topic(klamm_broker: EmbeddedServer, request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition, which no other test uses; it begins with the test's name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:100].strip("-")
    return klamm_broker.create_topic(f"{name}-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def klamm_admin(klamm_broker: EmbeddedServer) -> Admin:
    """What tests do to topics, records and groups without a client library: a `klamm.testing.Admin`."""
    return klamm_broker.admin


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A test leaves no faults behind, and the next one records from the beginning."""
    for server in _shared:
        server.faults.clear()
        server.recording.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of a failed test shows the requests that its broker received."""
    report = yield
    if call.when == "call" and report.failed and not _FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        own = item.stash.get(_own, None)
        for server in [own] if own is not None else _shared:
            text = _requests_of(server)
            if text:
                report.sections.append(("klamm: the requests of this test", text))
    return report


def _requests_of(server: Any) -> str:
    try:
        requests = server.requests()
    except (LookupError, RuntimeError):
        # A broker of the test's own may not record.
        return ""
    lines: list[list[Any]] = []
    for one in requests:
        recorded = one.to_json()
        shown = {key: recorded[key] for key in _SHOWN_KEYS if recorded[key]}
        # Clients poll: requests that differ in their duration alone are one line.
        if lines and lines[-1][0] == shown:
            lines[-1][1] += 1
        else:
            lines.append([shown, 1])
    texts = [f"… {len(lines) - _SHOWN} before"] if len(lines) > _SHOWN else []
    for shown, times in lines[-_SHOWN:]:
        text = json.dumps(shown)
        text = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
        texts.append(text if times == 1 else f"{times} times {text}")
    return "\n".join(texts)
