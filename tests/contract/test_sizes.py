"""No file, function, class or constructor grows beyond what one can take in at once.

Limits: `source_rules`. Generated messages are not counted. A constructor may have more parameters where the line
above it says how many and why: `# 9 parameters: REASON`.
"""

import pytest

from tests.contract.source_rules import ROOT, oversized

FOLDERS = ("bench", "core", "examples", "plugins", "scripts", "spark", "tests", "tools")
GENERATED = ROOT / "core" / "klamm" / "wire" / "messages"


def test_nothing_is_oversized():
    found = {
        name: size
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if GENERATED not in path.parents
        for name, size in oversized(path, path.relative_to(ROOT).as_posix())
    }
    assert found == {}


def _function(name, lines):
    return f"def {name}():\n" + "    pass\n" * (lines - 1)


def _constructor(parameters, above=""):
    names = ", ".join(f"p{index}" for index in range(parameters))
    return f"class C:\n    {above}\n    def __init__(self, {names}):\n        pass\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("pass\n" * 600, []),
        ("pass\n" * 601, [("x.py", "601 lines")]),
        (_function("f", 60), []),
        (_function("f", 61), [("x.py::f", "61 lines")]),
        ("if True:\n    async def f():\n" + "        pass\n" * 60, [("x.py::f", "61 lines")]),
        ("class C:\n" + "    pass\n" * 299, []),
        ("class C:\n" + "    pass\n" * 300, [("x.py::C", "301 lines")]),
        ("class C:\n" + "    def f(self): ...\n" * 25, []),
        ("class C:\n" + "    def f(self): ...\n" * 26, [("x.py::C", "26 methods")]),
        (_constructor(8), []),
        (_constructor(9), [("x.py::C::__init__", "9 parameters")]),
        (_constructor(9, "# 9 parameters: the fields of a header"), []),
        (_constructor(10, "# 9 parameters: the fields of a header"), [("x.py::C::__init__", "10 parameters")]),
        (_constructor(9, "# 9 parameters:"), [("x.py::C::__init__", "9 parameters")]),
    ],
)
def test_the_limits_are_kept(tmp_path, source, expected):
    path = tmp_path / "x.py"
    path.write_text(source)
    assert list(oversized(path, "x.py")) == expected
