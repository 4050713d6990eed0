"""Tests of unmodified serializers for Go with the Schema Registry."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from klamm.testing import EmbeddedServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

MODULES = ("github.com/confluentinc/confluent-kafka-go/v2@v2.11.1", "github.com/twmb/franz-go/pkg/sr@v1.8.0")
PROGRAM = Path(__file__).with_name("schema_registry.go")


def test_serializers_for_go(tmp_path):
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    shutil.copy(PROGRAM, tmp_path / "main.go")

    def run(*words, timeout):
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=timeout, check=False)

    run("go", "mod", "init", "klamm.example/registry", timeout=60)
    for fetch in (("get", *MODULES), ("mod", "tidy")):
        fetched = run("go", *fetch, timeout=240)
        if fetched.returncode:
            pytest.skip(f"the modules cannot be had: {fetched.stderr[-200:]}")
    built = run("go", "build", "-o", "registry", ".", timeout=400)
    assert built.returncode == 0, built.stderr
    types = ["AVRO", "JSON", *(["PROTOBUF"] if importlib.util.find_spec("grpc_tools") else [])]
    with EmbeddedServer(schema_registry=True) as server:
        ran = run("./registry", server.schema_registry_url, *types, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "")
