"""`State`: the subjects, ids and settings that follow from the records of the topic.

The records have the format of Confluent's registry. `Registry` holds its lock around all calls, except for metrics.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from klamm_schema_registry import bodies
from klamm_schema_registry.formats import AVRO


class Reference(NamedTuple):
    """A reference of one schema to another."""

    name: str
    subject: str
    version: int


class Content(NamedTuple):
    """The content of a schema. Equal contents share one id.

    `contract` is the JSON text of the schema's metadata and rules, which the registry stores but does not apply.
    """

    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    contract: str = "{}"


@dataclass(frozen=True, slots=True)
class Version:
    """A schema as a version of a subject."""

    subject: str
    version: int
    id: int
    content: Content
    deleted: bool = False

    def entry(self) -> dict[str, Any]:
        """Return the version as the REST API and the topic have it."""
        return {
            "subject": self.subject,
            "version": self.version,
            "id": self.id,
            **described(self.content),
        }

    def record(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the key and the value of the version's record."""
        return schema_key(self.subject, self.version), {**self.entry(), "deleted": self.deleted}


def described(content: Content) -> dict[str, Any]:
    """Return the fields of a schema, without the type of an Avro schema and without an empty list of references."""
    found: dict[str, Any] = {}
    if content.schema_type != AVRO:
        found["schemaType"] = content.schema_type
    if content.references:
        found["references"] = [each._asdict() for each in content.references]
    found.update(json.loads(content.contract))
    found["schema"] = content.text
    return found


def schema_key(subject: str, version: int) -> dict[str, Any]:
    """Return the key of a version's record."""
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}


def setting_key(kind: str, subject: str | None) -> dict[str, Any]:
    """Return the key of the record with a subject's CONFIG or MODE; without a subject, of the global one."""
    about = {} if subject is None else {"subject": subject}
    return {"keytype": kind, **about, "magic": 0}


class State:
    """The subjects, the ids, the compatibility levels and the modes."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Version]] = {}
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self.max_id = 0
        self._of_id: dict[int, dict[tuple[str, int], Version]] = {}
        self._id_of: dict[Content, int] = {}
        self._referring: dict[tuple[str, int], dict[tuple[str, int], Version]] = {}

    # ---- reading

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Return the versions of a subject, the oldest first; with `deleted`, include soft-deleted versions."""
        found = self.subjects.get(subject, {})
        return [found[number] for number in sorted(found) if deleted or not found[number].deleted]

    def all_versions(self) -> Iterator[Version]:
        """Yield all versions of all subjects, in the order of the subjects' names."""
        for subject in sorted(self.subjects):
            yield from self.versions(subject, deleted=True)

    def of_id(self, schema_id: int) -> list[Version]:
        """Return the versions that have an id, by subject."""
        return [each for _, each in sorted(self._of_id.get(schema_id, {}).items())]

    def id_of(self, content: Content) -> int | None:
        """Return the id of a schema."""
        return self._id_of.get(content)

    def referenced_by(self, subject: str, version: int, *, deleted: bool) -> list[Version]:
        """Return the versions whose schemas refer to a version; with `deleted`, include soft-deleted versions."""
        found = self._referring.get((subject, version), {})
        return [each for _, each in sorted(found.items()) if deleted or not each.deleted]

    @property
    def schemas(self) -> int:
        """The number of schemas, each counted for each subject and version."""
        # A copy, because metrics read it without the lock.
        return sum(map(len, self.subjects.copy().values()))

    # ---- records

    def apply(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        """Apply a record to the state. Raises LookupError, TypeError or ValueError for an invalid record."""
        kind = key.get("keytype")
        subject = key.get("subject")
        if kind == "SCHEMA":
            # Parse the record before the change, so that an invalid one changes nothing.
            made = None if value is None else _version(value)
            self._forget(key["subject"], key["version"])
            if made is not None:
                self._add(made)
        elif kind == "CONFIG":
            _put(self.configs, subject, None if value is None else {**value})
        elif kind == "MODE":
            _put(self.modes, subject, None if value is None else str(value["mode"]))
        elif kind == "DELETE_SUBJECT" and value is not None:
            self._delete(value["subject"], value["version"])

    def _delete(self, subject: str, last: int) -> None:
        for each in self.versions(subject):
            if each.version <= last:
                self._add(replace(each, deleted=True))

    def _add(self, each: Version) -> None:
        self._forget(each.subject, each.version)
        self.subjects.setdefault(each.subject, {})[each.version] = each
        self._of_id.setdefault(each.id, {})[each.subject, each.version] = each
        self._id_of.setdefault(each.content, each.id)
        for one in each.content.references:
            self._referring.setdefault((one.subject, one.version), {})[each.subject, each.version] = each
        self.max_id = max(self.max_id, each.id)

    def _forget(self, subject: str, version: int) -> None:
        found = self.subjects.get(subject, {}).pop(version, None)
        if found is None:
            return
        if not self.subjects[subject]:
            del self.subjects[subject]
        for one in found.content.references:
            self._referring.get((one.subject, one.version), {}).pop((subject, version), None)
        same = self._of_id[found.id]
        del same[subject, version]
        if not same:
            del self._of_id[found.id]
            if self._id_of.get(found.content) == found.id:
                del self._id_of[found.content]


def references_of(listed: Any) -> tuple[Reference, ...]:
    """Return the references in a JSON value. Raises LookupError, TypeError or ValueError."""
    return tuple(map(_reference, bodies.sequence(listed, "references")))


def _reference(value: Any) -> Reference:
    if not isinstance(value, dict):
        raise TypeError("a reference must be an object")
    name, subject = (bodies.text(value.get(key), key) for key in ("name", "subject"))
    version = bodies.number(value.get("version"), "version")
    if name is None or subject is None or version is None:
        raise LookupError("a reference needs name, subject and version")
    return Reference(name, subject, version)


def contract_of(value: Mapping[str, Any]) -> str:
    """Return metadata and rules of a schema as JSON text. Raises TypeError or ValueError."""
    found = {"metadata": bodies.metadata(value.get("metadata")), "ruleSet": bodies.rules(value.get("ruleSet"))}
    return json.dumps({key: each for key, each in found.items() if each}, sort_keys=True, ensure_ascii=False)


def _stored_contract(value: Mapping[str, Any]) -> str:
    """Return the contract of a stored schema. It is empty if its form is invalid, because the schema is still valid."""
    try:
        return contract_of(value)
    except (TypeError, ValueError):
        return "{}"


def _version(value: Mapping[str, Any]) -> Version:
    references = references_of(value.get("references"))
    content = Content(value.get("schemaType") or AVRO, value["schema"], references, _stored_contract(value))
    found = Version(value["subject"], value["version"], value["id"], content, bool(value.get("deleted")))
    texts, numbers = (found.subject, content.text, content.schema_type), (found.version, found.id)
    if not all(isinstance(each, str) for each in texts) or not all(type(each) is int for each in numbers):
        raise TypeError("a schema's record has a field of another type")
    return found


def _put(found: dict[str | None, Any], key: str | None, value: object) -> None:
    if value is None:
        found.pop(key, None)
    else:
        found[key] = value
