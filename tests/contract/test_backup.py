"""Tests of backups as docs/production.md describes them: the page's commands copy the data of a real server."""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.testing import RawClient
from klamm.testing.admin import Admin
from tests.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "production.md"


def commands(first_word_of_second_line):
    """Return the lines of a block of the page."""
    blocks = re.findall(r"^```sh\n(systemctl stop .*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (block,) = [one for one in blocks if one.splitlines()[1].startswith(first_word_of_second_line)]
    return block.splitlines()


class Service:
    """A server that the page's commands start and stop."""

    def __init__(self, folder):
        self.folder = folder
        self.data = folder / "lib" / "klamm"
        self.data.parent.mkdir()
        (folder / "backup").mkdir()
        self.process = None
        self.address = None

    def start(self):
        ready = self.folder / "ready.json"
        command = [sys.executable, "-m", "klamm", "serve", "--bind", "127.0.0.1:0", "--data-dir", str(self.data)]
        self.process = subprocess.Popen([*command, "--ready-file", str(ready)], stdout=subprocess.DEVNULL)
        wait_until(ready.exists)
        (found,) = re.findall(r'"default": "127.0.0.1:(\d+)"', ready.read_text())
        self.address = ("127.0.0.1", int(found))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(120) == 0

    def run(self, lines):
        """Run the commands of a block of the page in this folder."""
        for line in lines:
            if line.startswith("systemctl "):
                _, action, *units = line.split()
                # The socket must be closed, because systemd would start the server for a client while it is open.
                assert units == ["klamm.socket", "klamm.service"]
                getattr(self, action)()
                continue
            here = line.replace("/backup/", f"{self.folder}/backup/").replace("/var/lib", f"{self.folder}/lib")
            subprocess.run(here, shell=True, check=True)

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)


@pytest.fixture
def service(tmp_path):
    made = Service(tmp_path)
    made.start()
    yield made
    made.close()


class Client:
    """A client that writes records, and checks later whether a server still has them."""

    def __init__(self, service):
        self.service = service

    def admin(self):
        return Admin(lambda: RawClient(self.service.address, timeout_s=120))

    def create(self):
        admin = self.admin()
        admin.create_topic("orders")
        admin.close()

    def write(self, values):
        admin = self.admin()
        try:
            for value in values:
                admin.produce("orders", value)
        finally:
            admin.close()

    def read(self, count):
        admin = self.admin()
        try:
            return [record.value for record in admin.consume("orders", count)]
        finally:
            admin.close()


def values(first, last):
    return [b"%d" % number for number in range(first, last)]


def test_the_commands_of_the_page_back_up_and_restore(service):
    client = Client(service)
    client.create()
    client.write(values(0, 20))
    service.run(commands("tar --create"))
    client.write(values(20, 30))
    assert client.read(30) == values(0, 30)
    service.run(commands("mv "))
    client.write(values(100, 101))
    assert client.read(21) == [*values(0, 20), b"100"]


def test_a_snapshot_of_a_running_server_has_every_acknowledged_record(service):
    client = Client(service)
    client.create()
    client.write(values(0, 20))
    # The copy is made as by a snapshot of the file system: the server goes on meanwhile.
    service.process.send_signal(signal.SIGSTOP)
    copy = service.folder / "backup" / "klamm"
    shutil.copytree(service.data, copy)
    service.process.send_signal(signal.SIGCONT)
    client.write(values(20, 30))
    service.stop()
    service.data = copy
    service.start()
    client.write(values(100, 101))
    assert client.read(21) == [*values(0, 20), b"100"]
