"""docs/deviations.md explains each allowed difference between the answers of klamm and Kafka, in the same words."""

from pathlib import Path

import pytest

from tests.interop.beside_kafka import admin_cases, data_cases
from tests.interop.beside_kafka.random_known import KNOWN

PAGE = Path(__file__).resolve().parents[3] / "docs" / "deviations.md"
TEXT = " ".join(PAGE.read_text(encoding="utf-8").split())
OF_CASES = {case.differs for cases in (admin_cases, data_cases) for case in cases.all_cases()}
OF_SEQUENCES = {known.words for known in KNOWN}


@pytest.mark.parametrize("words", sorted((OF_CASES | OF_SEQUENCES) - {""}))
def test_allowed_differences_are_documented(words: str) -> None:
    assert words in TEXT
