"""docs/audit.md documents every setting and table of the pipeline, with its default."""

import ast
import re
from pathlib import Path

import pytest

from klamm.config import specs_of
from klamm_spark.spark_settings import SparkSettings

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("spec", specs_of(SparkSettings).values(), ids=lambda spec: spec.name)
def test_settings(spec):
    (row,) = re.findall(rf"^\| ([^|]*`{spec.name}`[^|]*) \| ([^|]*) \|", TEXT, re.MULTILINE)
    keys = [key.strip("` ") for key in row[0].split(",")]
    default = row[1].split(",")[keys.index(spec.name)].strip("` ")
    assert default == ("unset" if spec.default in ("", {}) else str(spec.default).replace("True", "true"))


def test_tables():
    module = ast.parse((ROOT / "spark" / "klamm_spark" / "tables.py").read_text(encoding="utf-8"))
    (tables,) = (
        node for node in module.body if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "TABLES"
    )
    names = re.search(r"for build in \(([^)]*)\)", ast.unparse(tables))[1].split(", ")
    assert len(names) == 6
    assert [name for name in names if f"| `{name}` |" not in TEXT] == []
