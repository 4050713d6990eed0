"""A console and its browser. The listener `server` has no authenticator, and `secure` has users."""

import http.client
import json
import time
import urllib.parse

import pytest

from klamm.testing import CertificateFiles, EmbeddedServer, MovingClock, Users
from klamm.testing.secure import secure_settings
from klamm.wire.messages import offset_commit
from klamm_console.extension import Console

CONSOLE = ['server.extensions=["console"]', "console.bind=127.0.0.1:0"]
HOSTILE = "<img src=x onerror=alert(1)>\"'\u202e"
PAGES = ("server", "connections", "topics", "groups", "transactions", "quotas", "acls")


def commit(running, group, topic, *offsets):
    """Commit offsets of a group for the first partitions of a topic."""
    partitions = [offset_commit.OffsetCommitRequestPartition(index, offset) for index, offset in enumerate(offsets)]
    topics = [offset_commit.OffsetCommitRequestTopic(topic, partitions=partitions)]
    running.admin.call_group(group, offset_commit.OffsetCommitRequest(group, -1, "", topics=topics), 8)


class UnhurriedClock(MovingClock):
    """A clock that is 50 times slower than the machine's, so that 25 logins are within a second on a busy machine."""

    def monotonic_ns(self):
        return time.monotonic_ns() // 50 + self._ahead_ns


class Browser:
    """A browser that keeps the cookie and the secret of the page. It gets a server or the page's address."""

    def __init__(self, server):
        if not isinstance(server, str):
            server = next(each for each in server.server.extensions if isinstance(each, Console)).url
        parts = urllib.parse.urlsplit(server)
        self.address = parts.hostname, parts.port
        self.token = parts.fragment.removeprefix("token=")
        self.cookie = self.csrf = ""
        self.headers = {}

    def send(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        sent = {"Cookie": f'other={{"a":"b"}}; {self.cookie}', "X-Klamm-Csrf": self.csrf}
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection.request(method, path, body, sent | headers)
        answer = connection.getresponse()
        content = answer.read()
        self.headers = dict(answer.getheaders())
        connection.close()
        return answer.status, content

    def __call__(self, path, body=None, **headers):
        method = "GET" if body is None else "POST"
        status, content = self.send(method, f"/api/{path}", None if body is None else json.dumps(body), **headers)
        cookie = self.headers.get("Set-Cookie", "")
        self.cookie = cookie.partition(";")[0] or self.cookie
        found = json.loads(content)
        if isinstance(found, dict):
            self.csrf = found.get("csrf", self.csrf)
        return status, found

    def log_in(self, user="", password="secret"):
        return self("login", {"user": user, "password": password} if user else {"token": self.token})

    def rights(self, **query):
        return self(f"access?{urllib.parse.urlencode(query)}")


@pytest.fixture(scope="module")
def server():
    with EmbeddedServer(CONSOLE) as running:
        yield running


@pytest.fixture
def browser(server):
    server.reset()
    made = Browser(server)
    assert made.log_in()[0] == 200
    return made


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    files_ = CertificateFiles(str(tmp_path_factory.mktemp("tls")))
    settings = [
        *secure_settings(files_),
        *CONSOLE,
        f"console.ca_file={files_.ca}",
        "listeners.secure.connection_failed_authentication_delay_ms=0",
    ]
    with EmbeddedServer(settings, clock=UnhurriedClock()) as running:
        users = Users(running.admin, files_.ca)
        for name in ("admin", "alice", "gone"):
            users.add(name)
        running.create_topic("orders")
        running.create_topic("payroll")
        running.acls.allow("alice", "READ", "TOPIC", "orders")
        yield running
