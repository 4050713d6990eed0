"""docs/audit/ documents every setting of the pipeline, with its default."""

import re
from pathlib import Path

import pytest

from klamm.config import specs_of
from klamm_spark.settings.findings import DetectSettings
from klamm_spark.settings.spark import SparkSettings

ROOT = Path(__file__).resolve().parents[3]
TEXT = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "audit").glob("*.md")))


def specs():
    for table, settings in (("spark", SparkSettings), ("detect", DetectSettings)):
        yield from (pytest.param(table, spec, id=f"{table}-{spec.name}") for spec in specs_of(settings).values())


@pytest.mark.parametrize(("table", "spec"), list(specs()))
def test_settings(table, spec):
    rows = TEXT.split(f"| key of `[audit.{table}]` |")[1].split("\n\n")[0]
    (row,) = re.findall(rf"^\| ([^|]*`{spec.name}`[^|]*) \| ([^|]*) \|", rows, re.MULTILINE)
    keys = [key.strip("` ") for key in row[0].split(",")]
    default = row[1].split(",")[keys.index(spec.name)].strip("` ")
    assert default == ("unset" if spec.default in ("", {}, (), None) else str(spec.default).replace("True", "true"))
