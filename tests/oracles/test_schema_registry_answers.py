"""Compares the recorded answers of a Schema Registry with those of a running one.

KLAMM_SCHEMA_REGISTRY is the address of an empty registry, e.g. http:
127.0.0.1:8081.
"""

import os

import pytest

from tests.registry_requests import answers, recorded, requests

URL = os.environ.get("KLAMM_SCHEMA_REGISTRY")


@pytest.mark.interop
@pytest.mark.timeout(300)
@pytest.mark.skipif(not URL, reason="KLAMM_SCHEMA_REGISTRY has no address of a registry")
def test_a_real_registry_answers_as_recorded():
    found = zip(requests(), recorded(), answers(URL), strict=True)
    assert [each for each in found if each[1] != each[2]] == []
