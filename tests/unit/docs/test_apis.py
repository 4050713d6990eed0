"""The generated page of APIs agrees with the code."""

from klamm.wire.api_keys import ApiKey
from klamm.wire.releases import RELEASES
from tools import generate_apis


def test_the_page_of_apis_is_up_to_date():
    assert generate_apis.PAGE.read_text(encoding="utf-8") == generate_apis.page(), "run python tools/generate_apis.py"


def test_exactly_the_missing_apis_have_a_reason():
    missing = RELEASES[generate_apis.RELEASE].keys() - generate_apis.served().keys()
    assert missing == {int(key) for key in generate_apis.REASONS}


def test_served_versions_do_not_exceed_kafkas():
    for key, versions in generate_apis.served().items():
        oldest, latest = RELEASES[generate_apis.RELEASE][key]
        assert latest >= versions.stop - 1, ApiKey(key)
        assert versions.start >= oldest, ApiKey(key)
