"""The generated modules equal the output of the generator for the committed descriptions."""

import pytest

from klamm import bind_handlers
from klamm.wire.api_keys import SPECS, ApiKey, load
from klamm.wire.primitives import WireError
from klamm.wire.struct_base import NO_ERROR_FIELDS, ErrorFields
from klamm_broker.control.control import HANDLERS as CONTROL_HANDLERS
from klamm_broker.handlers.served_apis import APIS
from klamm_gateway.forwarded_apis import forwarded_apis
from tools.generate_messages import (
    NOT_KEPT,
    formatted,
    generate,
    generate_records,
    stale_files,
    write_between_brokers,
)
from tools.messages.descriptions import BETWEEN_BROKERS, committed, committed_records
from tools.messages.schema import Schema, Struct


def test_the_committed_modules_equal_the_generators_output():
    stale = stale_files(formatted({**generate(committed()), **generate_records(committed_records())}))
    assert stale == [], "run python tools/generate_messages.py"


def test_messages_are_kept_if_an_api_set_serves_them():
    served = {int(api.api_key) for api in APIS} | {spec.api_key for spec, _versions in forwarded_apis()}
    served |= {handler.api_key for handler in bind_handlers(CONTROL_HANDLERS, object())}
    served |= {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    kept = {spec.api_key for spec in SPECS if "." not in spec.module}
    assert kept == served, "see BETWEEN_BROKERS in tools/messages/descriptions.py"
    assert {spec.name for spec in SPECS if spec.module.startswith(f"{NOT_KEPT.name}.")} == {*BETWEEN_BROKERS}


def test_messages_outside_git_are_written_if_they_are_missing_or_differ(tmp_path):
    write_between_brokers(tmp_path)
    folder = tmp_path / NOT_KEPT
    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert len(written) == len(BETWEEN_BROKERS) + 1
    assert all("do not edit" in text for text in written.values())
    (folder / "vote.py").write_text("another release's")
    (folder / "envelope.py").unlink()
    (folder / "gone.py").write_text("of an API that is served now")
    before = (folder / "end_quorum_epoch.py").stat()
    write_between_brokers(tmp_path)
    assert {path.name: path.read_text() for path in folder.iterdir()} == written
    assert (folder / "end_quorum_epoch.py").stat() == before, "what is up to date stays as it is"


def test_a_message_reads_and_writes_the_versions_of_its_description():
    for spec in SPECS:
        module = load(spec.api_key)
        for kind in ("Request", "Response"):
            message = vars(module)[spec.name + kind]
            assert set(message.CODECS) == set(module.DECODABLE), message
            assert all(callable(function) for codec in message.CODECS.values() for function in codec)
            for unknown in (module.DECODABLE.start - 1, module.DECODABLE.stop):
                with pytest.raises(WireError, match=f"{spec.name}{kind} has no version {unknown}"):
                    message().encode(unknown)
                with pytest.raises(WireError, match=f"{spec.name}{kind} has no version {unknown}"):
                    message.decode(unknown, b"")


def error_paths(struct: Struct, path: str = "") -> set[str]:
    """Return every field that has an error code by the description, by its path.

    A topic whose configs are hidden has been created, so that field is left out.
    """
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
    module = vars(load(spec.api_key))
    schema = Schema(committed()[f"{spec.name}Response"])
    assert declared_paths(module[f"{spec.name}Response"].ERRORS) == error_paths(schema.root)
    assert module[f"{spec.name}Request"].ERRORS is NO_ERROR_FIELDS
