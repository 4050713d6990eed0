"""moto in a child process: a server with S3's protocol that keeps objects in memory. Needs PyPI, once."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote
from xml.sax.saxutils import unescape

from tests.peers.builds import cached
from tests.peers.server import HOST, lasting_port

PACKAGES = ("moto[server]==5.2.5", "gunicorn==27.0.1")
START_TIMEOUT_S = 60
SIGNED = "AWS4-HMAC-SHA256 Credential=someone/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


def _build(folder: Path) -> Path:
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=120)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
    subprocess.run([str(venv / "bin" / "python"), *install], check=True, timeout=600)
    return venv


class S3:
    """One bucket. The server accepts every signature."""

    def __init__(self, endpoint: str, bucket: str) -> None:
        self.endpoint = endpoint
        self.bucket = bucket

    def put(self, key: str, data: bytes) -> None:
        self._request("PUT", f"/{quote(key)}", data)

    def get(self, key: str) -> bytes:
        return self._request("GET", f"/{quote(key)}")

    def keys(self, prefix: str) -> list[str]:
        """Return all keys with this prefix, in order."""
        found: list[str] = []
        while True:
            after = f"&start-after={quote(found[-1])}" if found else ""
            listed = self._request("GET", f"?list-type=2&encoding-type=url&prefix={quote(prefix)}{after}").decode()
            found += [unquote(unescape(key)) for key in re.findall(r"<Key>([^<]*)</Key>", listed)]
            if "<IsTruncated>true" not in listed:
                return found

    def _request(self, method: str, path: str, data: bytes | None = None) -> bytes:
        # urllib's default type is that of a form, whose content moto would parse.
        headers = {"Content-Type": "application/octet-stream", "Authorization": SIGNED}
        request = urllib.request.Request(f"{self.endpoint}/{self.bucket}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            body: bytes = answer.read()
        return body

    def create(self) -> None:
        self._request("PUT", "")


@contextmanager
def s3_server(directory: Path, bucket: str) -> Iterator[S3]:
    """Run a server with one empty bucket until the end of the block."""
    # Not the program `gunicorn`, which contains the path of the original venv. moto's own server has no reliable
    # threads.
    python = cached(f"moto-{PACKAGES[0].rpartition('=')[2]}", _build) / "bin" / "python"
    port = lasting_port()
    command = [str(python), "-m", "gunicorn", "--workers=1", "--threads=8", "--no-control-socket"]
    with (directory / "s3.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--bind={HOST}:{port}", "moto.server:create_backend_app('s3')"],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        bucket_there = S3(f"http://{HOST}:{port}", bucket)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                bucket_there.create()
                break
            except urllib.error.URLError:
                assert process.poll() is None, (directory / "s3.log").read_text()
                assert time.monotonic() < deadline, (directory / "s3.log").read_text()
                time.sleep(0.1)
        yield bucket_there
    finally:
        process.terminate()
        process.wait(START_TIMEOUT_S)
