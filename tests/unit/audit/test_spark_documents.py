"""The pages of docs/audit/ document every setting of the pipeline with its default."""

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
def test_page_lists_each_setting_with_its_default(table, spec):
    rows = "\n".join(part.split("\n\n")[0] for part in TEXT.split(f"| key of `[audit.{table}]` |")[1:])
    found = re.findall(rf"^\| ([^|]*`{spec.name}`[^|]*) \| ([^|]*) \|", rows, re.MULTILINE)
    split = [([one.strip("` ") for one in names.split(",")], defaults.split(",")) for names, defaults in found]
    # A row for several keys may refer to another page for their defaults.
    stated = [defaults[names.index(spec.name)].strip("` ") for names, defaults in split if len(names) == len(defaults)]
    assert stated == ["unset" if spec.default in ("", {}, (), None) else str(spec.default).replace("True", "true")]
