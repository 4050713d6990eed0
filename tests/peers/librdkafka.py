"""librdkafka's sources, and its own tests as a program. Needs cargo, make and gcc, once.

The crate `rdkafka-sys` carries the sources; nothing of Rust is compiled.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.peers.builds import cached

CRATE_VERSION = "4.10.0"
"""The version of `rdkafka-sys`, which has librdkafka 2.12.1."""

_CARGO_TOML = f"""[package]
name = "peers"
version = "0.0.0"
edition = "2021"
[lib]
path = "unused.rs"
[dependencies]
rdkafka-sys = "={CRATE_VERSION}"
"""


def librdkafka(folder: Path) -> Path:
    """Copy librdkafka's sources to `folder`. Return the copy."""
    (folder / "Cargo.toml").write_text(_CARGO_TOML)
    command = ["cargo", "metadata", "--format-version", "1", "--quiet"]
    metadata = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, timeout=600).stdout
    (crate,) = (one for one in json.loads(metadata)["packages"] if one["name"] == "rdkafka-sys")
    return shutil.copytree(Path(crate["manifest_path"]).parent / "librdkafka", folder / "librdkafka")


def librdkafka_tests() -> Path:
    """Return the folder `tests` of a built copy. `test-runner` runs in it, with the libraries in `../src` and
    `../src-cpp`.

    It has the tests that read statistics only if RapidJSON's headers are installed.
    """
    return cached(f"librdkafka-tests-{CRATE_VERSION}", _build) / "tests"


def _build(folder: Path) -> Path:
    sources = librdkafka(folder)
    with (sources / "build.log").open("wb") as log:
        configure = ["./configure", "--disable-curl", "--disable-gssapi", "--no-download"]
        for command in (configure, ["make", "-j2", "libs"], ["make", "-j2", "-C", "tests", "test-runner"]):
            subprocess.run(command, cwd=sources, check=True, stdout=log, stderr=log, timeout=900)
    return sources
