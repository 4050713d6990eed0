"""`klamm serve` in a child process."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.peers.builds import cache_dir
from tests.peers.server import HOST, Server

ROOT = Path(__file__).resolve().parents[2]


class KlammServer(Server):
    """A klamm server. It is ready once the ready file exists, which klamm writes when every listener answers."""

    name = "klamm"
    start_timeout_s = 60.0
    stop_timeout_s = 120.0

    @property
    def ready_file(self) -> Path:
        return self.directory / "ready.json"

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    def command(self) -> list[str]:
        self.ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "klamm", "serve", "--bind", f"{HOST}:{self.port}"]
        command += ["--data-dir", str(self.data_dir), "--ready-file", str(self.ready_file)]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        return command

    def environment(self) -> dict[str, str]:
        roots = [entry for entry in sys.path if entry.startswith(str(ROOT)) and "site-packages" not in entry]
        inherited = os.environ.get("PYTHONPATH")
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([*roots, *([inherited] if inherited else [])])}
        if environment.pop("PYTHONDONTWRITEBYTECODE", None):
            # An installed klamm has bytecode, so this one gets it too, but not beside the sources.
            environment["PYTHONPYCACHEPREFIX"] = str(cache_dir() / "pycache")
        return environment

    def answers(self) -> bool:
        if not self.ready_file.exists():
            return False
        ready = json.loads(self.ready_file.read_text())
        assert ready["pid"] == self.pid
        assert self.bootstrap in ready["listeners"].values(), ready
        return True
