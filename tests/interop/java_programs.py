"""The programs in `tests/interop/java`, compiled once, and one JVM that runs tools of Apache Kafka."""

from __future__ import annotations

import atexit
import hashlib
import os
import struct
import subprocess
import threading
from functools import cache
from pathlib import Path
from typing import Final

from tests.peers.builds import cached
from tests.peers.kafka_jars import VERSION, classpath

QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256M")
"""Options of a JVM that starts quickly, although it runs more slowly."""
_FOLDER: Final = Path(__file__).parent / "java"
_PROGRAMS: Final = ("AdminCalls", "FaultProbe", "SecurityProbe", "Tools")
_INT: Final = struct.Struct(">i")


@cache
def programs() -> str:
    """Return the folder of the compiled programs. In a class path it stands before Apache Kafka's jars."""
    sources = [_FOLDER / f"{name}.java" for name in _PROGRAMS]
    texts = b"".join(source.read_bytes() for source in sources)

    def build(folder: Path) -> Path:
        target = folder / "classes"
        subprocess.run(["javac", "-cp", classpath(), "-d", target, *sources], check=True, timeout=240)
        return target

    return str(cached(f"java-programs-{VERSION}-{hashlib.sha256(texts).hexdigest()[:16]}", build))


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}


class ToolsMachine:
    """A JVM that runs one tool after the other. Its environment is that of this process at the JVM's start."""

    def __init__(self) -> None:
        self.environment = _environment()
        command = ["java", *QUICK, "-cp", f"{programs()}:{classpath()}", "Tools"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, main_class: str, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Run a tool. Raises TimeoutExpired and ends the JVM if the tool takes longer."""
        words = [word.encode() for word in (main_class, *arguments)]
        request = _INT.pack(len(words)) + b"".join(_INT.pack(len(word)) + word for word in words)
        too_late = threading.Timer(timeout_s, self._process.kill)
        too_late.start()
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(request)
            self._process.stdin.flush()
            code = _INT.unpack(self._read(_INT.size))[0]
            output, errors = (self._read(_INT.unpack(self._read(_INT.size))[0]).decode() for _ in range(2))
        except EOFError:
            self.stop()
            raise subprocess.TimeoutExpired([main_class, *arguments], timeout_s) from None
        finally:
            too_late.cancel()
        return subprocess.CompletedProcess([main_class, *arguments], code, output, errors)

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(count)
        if len(data) < count:
            raise EOFError
        return data

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


_machine: ToolsMachine | None = None
_lock = threading.Lock()


def run_in_the_machine(main_class: str, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a tool in the JVM of this process.

    The JVM starts at the first call, and again if the environment has changed.
    """
    global _machine
    with _lock:
        if _machine is not None and _machine.environment != _environment():
            _machine.stop()
        if _machine is None or not _machine.running:
            _machine = ToolsMachine()
            atexit.register(_machine.stop)
        return _machine.run(main_class, *arguments, timeout_s=timeout_s)
