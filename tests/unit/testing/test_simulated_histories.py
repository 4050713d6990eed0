"""Tests of histories of simulated clients: klamm has no anomaly, and each planted fault is named."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.testing import simulated_histories, simulated_machine, simulated_restarts
from tests.unit.testing.planted_simulation import FAULTS

ROOT = Path(__file__).parents[3]
MANY = int(os.environ.get("KLAMM_HISTORIES", "10000"))
IN_CI = 50
PER_TEST = 25
WORKLOADS = pytest.mark.parametrize(
    "workload",
    [
        pytest.param(simulated_histories, id="clients"),
        pytest.param(simulated_restarts, id="restarts"),
        pytest.param(simulated_machine, id="machine", marks=pytest.mark.interpreted),
    ],
)


def check(workload, seeds):
    for seed in seeds:
        found = workload.anomalies_of(seed)
        command = f'python -c "from {workload.__name__} import anomalies_of as a; print(a({seed}))"'
        assert found == [], f"seed {seed}; again: {command}"
        if seed % 500 == 499:
            print(f"{seed + 1} histories", flush=True)


@WORKLOADS
@pytest.mark.parametrize("first", range(0, IN_CI, PER_TEST))
@pytest.mark.timeout(600)
def test_a_simulated_history_has_no_anomaly(workload, first):
    check(workload, range(first, first + PER_TEST))


@pytest.mark.interpreted
def test_a_machine_has_each_of_its_faults():
    seen = Counter()
    for seed in range(8):
        found, events = simulated_machine.recorded(seed, 4, 0, 0)
        assert found == []
        seen += events
    assert seen.keys() == {"refused", "slow", "jumps"}


@pytest.mark.slow
@pytest.mark.timeout(0)
@WORKLOADS
def test_many_simulated_histories_have_no_anomaly(workload):
    check(workload, range(MANY))


@pytest.mark.slow
@pytest.mark.interpreted
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named_within_200_histories(fault):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "tests.unit.testing.planted_simulation", fault]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1].isdigit(), done.stdout
