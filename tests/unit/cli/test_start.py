"""Tests of work that a start leaves out because it takes time: imports for later requests, and garbage collection."""

import gc
import subprocess
import sys

import pytest

from klamm.server.serving import no_collections

NOT_NEEDED = {
    "asyncio",
    "cryptography",
    "difflib",
    "email",
    "hashlib",
    "hmac",
    "http",
    "importlib.metadata",
    "klamm.api.sasl",
    "klamm.shared.java_regex",
    "klamm.shared.scram",
    "klamm_broker.security.delegation_tokens",
    "ssl",
    "tempfile",
    "unittest",
    "zipfile",
}

MOST_MODULES = 390
"""klamm's own modules. Each takes a third of a millisecond, so a start imports only those for the first request."""

PROGRAM = """
import sys
sys.path[:0] = {path!r}
from klamm.cli.main import main
assert main(["check"]) == 0
import klamm.server.serving
import klamm_broker.broker
print(*sys.modules)
"""

ANSWERED = """
import sys
sys.path[:0] = {path!r}
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
with EmbeddedServer() as server, RawClient(server.address()) as client:
    print(len(client.call(ApiVersionsRequest("klamm", "1"), 3).api_keys))
"""


def test_a_start_without_a_file_imports_no_heavy_library():
    program = PROGRAM.format(path=sys.path)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    imported = set(done.stdout.splitlines()[-1].split())
    assert "klamm_broker.broker" in imported
    assert not imported & NOT_NEEDED
    assert sum(name.startswith("klamm") for name in imported) <= MOST_MODULES


@pytest.mark.skipif(sys.version_info < (3, 15), reason="Lazy imports are of Python 3.15.")
def test_a_server_with_lazy_imports_answers():
    command = [sys.executable, "-X", "lazy_imports=all", "-c", ANSWERED.format(path=sys.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) > 50


def test_the_garbage_collector_skips_a_start_and_its_objects():
    frozen = gc.get_freeze_count()
    with no_collections():
        assert not gc.isenabled()
        made = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() - frozen >= len(made)
    gc.unfreeze()


def test_a_start_that_fails_leaves_collections_on():
    with pytest.raises(ValueError), no_collections():
        raise ValueError
    assert gc.isenabled()
