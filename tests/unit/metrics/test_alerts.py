"""promtool evaluates the alerts: each one fires in its case, and not when all is well."""

import json
import re
import shutil
import subprocess

import pytest

from klamm_metrics import files
from tests.unit.metrics.alert_cases import CASES

AFTER = "1h50m"


def test_each_alert_has_a_case():
    assert set(re.findall(r"- alert: (\w+)", files.read("alerts"))) == CASES.keys()


def unit_test(name, series, *, fires):
    expected = [{"labels": "{}", "value": 1}] if fires else []
    return {
        "interval": "1m",
        "name": f"{name} {'fires' if fires else 'is quiet'}",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) > bool 0',
                "eval_time": AFTER,
                "exp_samples": expected,
            }
        ],
    }


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_each_alert_fires_only_in_its_case(tmp_path):
    (tmp_path / "klamm-alerts.yml").write_text(files.read("alerts"))
    tests = [unit_test(name, case.fires, fires=True) for name, case in CASES.items()]
    tests += [unit_test(name, case.is_quiet, fires=False) for name, case in CASES.items()]
    # JSON is YAML.
    cases = {"rule_files": ["klamm-alerts.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "cases.yml").write_text(json.dumps(cases))
    for command in (["check", "rules", "klamm-alerts.yml"], ["test", "rules", "cases.yml"]):
        run = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
