"""Tests of unmodified serializers for Node with the Schema Registry."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from klamm.testing import EmbeddedServer

pytestmark = pytest.mark.interop

PACKAGES = ("@kafkajs/confluent-schema-registry@4.1.0", "@confluentinc/schemaregistry@1.10.1")
PROGRAM = Path(__file__).with_name("schema_registry.cjs")


def test_serializers_for_node(tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    install = ["npm", "install", "--no-audit", "--no-fund", "--prefer-offline", "--ignore-scripts", *PACKAGES]
    fetched = subprocess.run(install, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    if fetched.returncode:
        pytest.skip(f"the packages cannot be had: {fetched.stderr[-200:]}")
    types = ["AVRO", "JSON", *(["PROTOBUF"] if importlib.util.find_spec("grpc_tools") else [])]
    program = shutil.copy(PROGRAM, tmp_path)
    with EmbeddedServer(schema_registry=True) as server:
        command = ["node", program, server.schema_registry_url, *types]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stderr) == (0, "")
