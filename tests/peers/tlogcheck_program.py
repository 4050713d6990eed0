"""A program that checks a log with Torchwood and Go's own Merkle tree. Needs Go, and once the network."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.peers.builds import cached_program

SOURCE = Path(__file__).parent / "tlogcheck"


def _build(_folder: Path, program: Path) -> None:
    subprocess.run(["go", "build", "-o", program, "."], cwd=SOURCE, check=True, timeout=600)


def tlogcheck(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the program. `main.go` describes its arguments."""
    program = cached_program("tlogcheck", SOURCE, _build)
    return subprocess.run([program, *map(str, arguments)], input=stdin, capture_output=True, timeout=120, check=False)
