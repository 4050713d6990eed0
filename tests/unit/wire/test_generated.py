"""The generated modules are what the generator makes of the committed descriptions."""

import importlib

import pytest

from klamm.wire.api_keys import SPECS
from klamm.wire.struct_base import NO_ERROR_FIELDS, ErrorFields
from tools.generate_messages import formatted, generate, stale_files
from tools.messages.descriptions import committed
from tools.messages.schema import Schema, Struct


def test_the_committed_modules_are_what_the_generator_makes():
    stale = stale_files(formatted(generate(committed())))
    assert stale == [], "run python tools/generate_messages.py"


def error_paths(struct: Struct, path: str = "") -> set[str]:
    """Every field that the description gives an error code, by its path through lists; a topic whose configs are not
    shown has been created."""
    found = set()
    for field in struct.fields:
        if field.name.endswith("error_code") and field.name != "topic_config_error_code":
            found.add(path + field.name)
        elif field.is_array and field.struct is not None:
            found |= error_paths(field.struct, f"{path}{field.name}.")
    return found


def declared_paths(fields: ErrorFields, path: str = "") -> set[str]:
    found = {path + code for code in fields.codes}
    return found.union(*(declared_paths(below, f"{path}{name}.") for name, below in fields.lists))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_responses_declare_each_field_that_carries_an_error(spec):
    module = vars(importlib.import_module(f"klamm.wire.messages.{spec.module}"))
    schema = Schema(committed()[f"{spec.name}Response"])
    assert declared_paths(module[f"{spec.name}Response"].ERRORS) == error_paths(schema.root)
    assert module[f"{spec.name}Request"].ERRORS is NO_ERROR_FIELDS
