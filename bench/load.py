"""The load generator, a C program: builds it with gcc once per source text, and runs it for the other benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.frames import Frame
from tests.peers.builds import cached_program
from tests.peers.probe import API_VERSIONS_V0

SOURCE = Path(__file__).parent / "loadgen"
WARMUP_S = 0.5


@dataclass(slots=True, frozen=True)
class Load:
    """The load that the generator applies.

    Without a rate, every connection keeps `depth` requests in flight. With one, `rate_per_s` requests are sent each
    second over all connections, at most `depth` in flight on each, and latency counts from when a request was due.
    """

    connections: int
    depth: int = 1
    rate_per_s: float = 0.0
    reconnect: bool = False
    """Close each connection after one answer and open another, so that a request is a whole connection. Needs depth 1.
    """
    rotate: bool = False
    """Send the frames in turn, instead of one frame for each connection. All frames have the same size."""


@dataclass(slots=True, frozen=True)
class LoadResult:
    """The result that the load generator printed. A megabyte is 1,000,000 bytes.

    `client_cpu` is the generator's own use of a core, from 0 to 1.
    """

    seconds: float
    requests: int
    requests_per_s: float
    sent_mb_per_s: float
    received_mb_per_s: float
    records_mb_per_s: float
    p50_us: float
    p90_us: float
    p99_us: float
    p999_us: float
    max_us: float
    mean_us: float
    errors: int
    first_error_code: int
    unanswered: int
    client_cpu: float
    server_cpu_us: float = 0.0
    """Processor time of the server per request, if the benchmark measures it."""


@contextmanager
def on_cores_for_servers(count: int | None) -> Iterator[None]:
    """Start servers on `count` cores, which exclude the load generator's core; with None on all cores."""
    cores = os.sched_getaffinity(0)
    if count is not None:
        os.sched_setaffinity(0, sorted(cores)[1 : 1 + count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def on_one_core() -> Iterator[None]:
    """Keep this process and its new children on one core, so that the server has the other cores."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def load_generator() -> Path:
    """Return the compiled program in the user's cache directory. Raises CalledProcessError if gcc fails."""
    return cached_program("loadgen", SOURCE, _build)


def _build(_folder: Path, program: Path) -> None:
    subprocess.run(["gcc", "-O2", "-std=gnu11", "-o", program, SOURCE / "loadgen.c"], check=True)


class IdleConnections:
    """Many connections that were served once and then do nothing, while the `with` block runs."""

    def __init__(self, address: tuple[str, int], count: int) -> None:
        host, port = address
        self._arguments = ["--host", host, "--port", str(port), "--connections", str(count), "--idle"]

    def __enter__(self) -> Self:
        with tempfile.NamedTemporaryFile(prefix="klamm-bench-frame-") as file:
            file.write(API_VERSIONS_V0)
            file.flush()
            command = [str(load_generator()), *self._arguments, file.name]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if not self._line():
                raise RuntimeError(f"the connections cannot be opened: {self._process.wait()}")
        return self

    def _line(self) -> dict[str, int]:
        assert self._process.stdout is not None
        parsed: dict[str, int] = json.loads(self._process.stdout.readline() or "{}")
        return parsed

    def release(self) -> int:
        """End the connections. Return how many the server had not closed before."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._line()["held"]

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()


def run_load(
    address: tuple[str, int],
    frames: Sequence[Frame],
    load: Load,
    seconds: float,
    warmup_s: float = WARMUP_S,
    end_offset: int = 0,
) -> LoadResult:
    """Send `frames`: connection i sends frame i modulo their number. Raises RuntimeError if an answer has an error."""
    host, port = address
    first = frames[0]
    arguments = ["--host", host, "--port", str(port), "--connections", str(load.connections)]
    arguments += ["--depth", str(load.depth), "--rate", str(load.rate_per_s)]
    arguments += ["--seconds", str(seconds), "--warmup", str(warmup_s), "--error-at", str(first.error_at)]
    arguments += ["--offset-at", str(first.offset_at), "--records-at", str(first.records_at)]
    arguments += ["--end-offset", str(end_offset), "--vary-at", str(first.vary_at)]
    arguments += ["--reconnect"] if load.reconnect else []
    arguments += ["--rotate"] if load.rotate else []
    with tempfile.TemporaryDirectory(prefix="klamm-bench-frames-") as folder:
        paths = [Path(folder) / str(number) for number in range(len(frames))]
        for path, frame in zip(paths, frames, strict=True):
            path.write_bytes(frame.data)
        with on_one_core():
            done = subprocess.run(
                [load_generator(), *arguments, *paths],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=seconds + warmup_s + 60,
            )
    result = LoadResult(**json.loads(done.stdout))
    if result.errors or result.unanswered:
        code = result.first_error_code
        raise RuntimeError(f"{result.errors} errors (the first: {code}), {result.unanswered} unanswered")
    return result
