"""Tests of the systemd unit. systemd-analyze rates its hardening, if it is installed."""

import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "production" / "systemd"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_exposure_of_the_service_is_below_3():
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", FOLDER / "klamm.service"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"exposure level for klamm.service: ([\d.]+)", run.stdout)
    if found is None:
        pytest.skip(f"this systemd-analyze rates no file: {run.stderr}")
    assert float(found[1]) < 3


def test_the_socket_is_named_as_a_listener():
    units = ConfigParser(strict=False)
    units.optionxform = str
    units.read([FOLDER / "klamm.socket", FOLDER / "klamm.service"])
    assert units["Socket"]["FileDescriptorName"] == "internal"
    assert units["Service"]["Type"] == "notify"
    assert units["Unit"]["Requires"] == "klamm.socket"
