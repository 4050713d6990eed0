"""Tests of the changes that `tools/mutants.py` makes in a module."""

import ast

import pytest

from tools.mutants import AREAS, ROOT, mutants

SOURCE = '''\
LIMIT = 5


def check(size: int, *, strict: bool = True) -> bool:
    """Return True if 3 < 4."""
    log.info("%d", size + 1)
    if not strict and size < LIMIT:
        raise ValueError(f"{size + 1} is too many, é {size == 2}")
    return size % 2 == 0 or strict
'''


def test_a_mutant_has_one_change_in_code_that_runs():
    found = [(mutant.line, mutant.after) for mutant in mutants(SOURCE)]
    assert found == [
        (7, "(not strict or size < LIMIT)"),
        (7, "(strict)"),
        (7, "(size <= LIMIT)"),
        (9, "(size % 2 == 0 and strict)"),
        (9, "(size % 2 != 0)"),
        (9, "(3)"),
        (9, "(1)"),
    ]


def test_each_mutant_is_a_module_with_another_meaning():
    texts = {ast.dump(ast.parse(mutant.applied(SOURCE))) for mutant in mutants(SOURCE)}
    assert len(texts) == 7
    assert ast.dump(ast.parse(SOURCE)) not in texts


@pytest.mark.parametrize("area", AREAS.values(), ids=AREAS)
def test_an_area_has_modules_and_tests(area):
    assert all(list(ROOT.glob(pattern)) for pattern in area.modules)
    assert all((ROOT / test).exists() for test in area.tests)
