"""The guide to writing plugins: its plugin, put together from its blocks, passes the tests that it shows."""

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "writing-plugins.md"


def test_the_plugin_of_the_guide_works(tmp_path):
    blocks = re.findall(r"^```python\n# ([\w/]+\.py).*?\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    modules = {f"klamm_clock/{name}.py" for name in ("__init__", "parts", "filters")}
    assert {name for name, _ in blocks} == {*modules, "test_clock.py"}
    for name, text in blocks:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        with file.open("a") as out:
            out.write(text)
    code = (
        f"import sys; sys.path[:0] = {[str(tmp_path), *sys.path]!r}; import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_clock.py"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
