"""`RegistryError` and the errors of the REST API, with the codes and messages of Confluent's registry."""

from __future__ import annotations

from typing import Final

LEVELS_TEXT: Final = "none, backward, forward, full, backward_transitive, forward_transitive, and full_transitive"


class RegistryError(Exception):
    """Raised for an error answer. Its code begins with the HTTP status."""

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


def bad_request(reason: object) -> RegistryError:
    return RegistryError(400, f"Bad Request: {reason}")


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    text = f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    return RegistryError(40406, text)


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    text = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return RegistryError(40407, text)


def no_subject_level(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_subject_mode(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: list[str]) -> RegistryError:
    listed = f"[{', '.join(details)}]"
    return RegistryError(
        40901,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: {listed}',
    )


def invalid_version(version: str) -> RegistryError:
    text = f"The specified version '{version}' is not a valid version id."
    return RegistryError(42202, f'{text} Allowed values are between [1, 2^31-1] and the string "latest"')


def invalid_level() -> RegistryError:
    return RegistryError(42203, f"Invalid compatibility level. Valid values are {LEVELS_TEXT}")


def invalid_mode() -> RegistryError:
    return RegistryError(42204, "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD.")


def forward_mode() -> RegistryError:
    return RegistryError(42204, "Forward mode only supported on global level")


def not_permitted(message: str) -> RegistryError:
    return RegistryError(42205, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid.")
