"""The generated page of settings is what the code says."""

from scripts import generate_reference


def test_the_page_of_settings_is_up_to_date():
    assert generate_reference.PAGE.read_text(encoding="utf-8") == generate_reference.page(), (
        "run python scripts/generate_reference.py"
    )
