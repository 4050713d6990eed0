"""`RegistryError` and the errors of the REST API, with the codes and messages of Confluent's registry.

`Api` and `Registry` raise them; the HTTP server turns them into answers.
"""

from __future__ import annotations

from collections.abc import Callable


class RegistryError(Exception):
    """Raised to answer with an error. The first three digits of its code are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        return int(str(self.code)[:3])


class InvalidSchemaError(RegistryError):
    """Raised for a schema that is invalid or exceeds the limits."""

    def __init__(self, message: str) -> None:
        super().__init__(42201, message)


def _error(code: int, text: str) -> Callable[..., RegistryError]:
    """Return a function that makes an error. The function's arguments replace the `{}` in the text."""
    return lambda *values: RegistryError(code, text.format(*values))


bad_request = _error(400, "Bad Request: {}")
subject_not_found = _error(40401, "Subject '{}' not found.")
version_not_found = _error(40402, "Version {} not found.")
schema_not_found = _error(40403, "Schema not found")
schema_id_not_found = _error(40403, "Schema {} not found")
subject_soft_deleted = _error(40404, "Subject '{}' was soft deleted.Set permanent=true to delete permanently")
subject_not_soft_deleted = _error(40405, "Subject '{}' was not deleted first before being permanently deleted")
version_soft_deleted = _error(
    40406, "Subject '{}' Version {} was soft deleted.Set permanent=true to delete permanently"
)
version_not_soft_deleted = _error(
    40407, "Subject '{}' Version {} was not deleted first before being permanently deleted"
)
no_subject_level = _error(40408, "Subject '{}' does not have subject-level compatibility configured")
no_subject_mode = _error(40409, "Subject '{}' does not have subject-level mode configured")
incompatible = _error(
    40901, 'Schema being registered is incompatible with an earlier schema for subject "{}", details: [{}]'
)
invalid_version = _error(
    42202,
    "The specified version '{}' is not a valid version id. Allowed values are between [1, 2^31-1] and the string"
    ' "latest"',
)
invalid_level = _error(
    42203,
    "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive,"
    " forward_transitive, and full_transitive",
)
invalid_mode = _error(42204, "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD.")
forward_mode = _error(42204, "Forward mode only supported on global level")
not_permitted = _error(42205, "{}")
reference_exists = _error(
    42206, "One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={},version={}}}."
)
invalid_subject = _error(42208, "The specified subject '{}' is not a valid.")
