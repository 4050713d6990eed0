"""`klamm serve` with several workers, as a process of its own."""

import http.client
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

from klamm.testing import RawClient
from tests.waiting import wait_until

ECHO = """[server]
workers = 3
extensions = ["prometheus"]

[prometheus]
bind = "127.0.0.1:0"

[listeners.front]
bind = "127.0.0.1:0"
api_set = "echo"
backlog = 500
"""


class Serving:
    """A running `klamm serve`. `lines` has the lines that it has written so far."""

    def __init__(self, file, ready_file):
        self.file = file
        command = [sys.executable, "-m", "klamm", "serve", str(file), "--ready-file", str(ready_file)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.ready_file = ready_file
        wait_until(lambda: ready_file.exists() or self.process.poll() is not None, "it does not start")

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def address(self, listener="front"):
        bound = json.loads(self.ready_file.read_text())["listeners"][listener]
        host, _, port = bound.rpartition(":")
        return host, int(port)

    def connect(self):
        return RawClient(self.address(), timeout_s=20)

    def workers(self):
        """The process ids of the workers, in the order in which they were started."""
        pid = self.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def exporter(self):
        """The address of the exporter."""
        self.wait_for_line("prometheus ")
        (line,) = (line for line in self.lines if "prometheus " in line)
        return next(word for word in line.replace(",", " ").split("prometheus ")[1].split())

    def page(self, path):
        """Return status and text of a page of the exporter."""
        connection = http.client.HTTPConnection(self.exporter(), timeout=60)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()

    def metric(self, name):
        """Return the sum of all samples of a metric."""
        _, text = self.page("/metrics")
        rows = [line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] == name]
        return sum(float(row.rpartition(" ")[2]) for row in rows)

    def wait_for_line(self, text):
        wait_until(lambda: any(text in line for line in self.lines), f"the line was not written: {text}")

    def end(self, number=signal.SIGTERM):
        """Stop the server. Return its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join(60)
        return code
