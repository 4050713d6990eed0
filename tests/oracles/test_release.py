"""Compares klamm with the jars of a release, by `tools/kafka_diff`."""

from __future__ import annotations

import subprocess
import warnings

import pytest

from tests.peers.kafka_jars import PUBLISHED_TESTS, VERSION, newest
from tools.kafka_diff import main

pytestmark = pytest.mark.interop


def test_every_difference_from_klamms_release_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([VERSION]) == 0, capsys.readouterr().out


@pytest.mark.timeout(1200)
def test_a_newer_release_is_announced(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        found = newest()
        if found == VERSION:
            return
        warnings.warn(f"Apache Kafka {found} is published.", stacklevel=1)
        main([found])
    except subprocess.SubprocessError as error:
        pytest.skip(f"A newer release is not found, or cannot be read: {error}")
    warnings.warn(capsys.readouterr().out, stacklevel=1)


@pytest.mark.slow
def test_additions_since_an_older_release_are_not_in_that_release(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([PUBLISHED_TESTS]) == 0
    newer = "\n".join(line for line in capsys.readouterr().out.splitlines() if line.startswith("newer than 4.3.1: "))
    for expected in (
        "API 18 ApiVersions: 0–4, klamm has 0–5",
        "API 28 TxnOffsetCommit: 0–5, klamm has 0–6",
        "API 42 DeleteGroups: 0–2, klamm has 0–3",
        "error CONTROLLER_ID_NOT_REGISTERED",
        "feature metadata.version",
        "config topic:max.decompressed.message.bytes",
    ):
        assert expected in newer
