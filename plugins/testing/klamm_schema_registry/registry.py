"""`Registry`: the subjects and schemas, and the changes that requests make. The HTTP server's threads call it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from klamm import KafkaError
from klamm_schema_registry import errors
from klamm_schema_registry.formats import LEVELS, ParsedSchema, parse, problems
from klamm_schema_registry.state import Content, Reference, State, Version, schema_key, setting_key
from klamm_schema_registry.topic import SchemasTopic, log

MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
LATEST: Final = -1
_RESERVED: Final = ("__GLOBAL", "__EMPTY")
_KEPT_SCHEMAS: Final = 200
_MAX_KEPT_CHARACTERS: Final = 64 << 10
_MAX_REFERENCES: Final = 500
_MAX_REFERENCED_CHARACTERS: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Submitted:
    """The schema in a request."""

    content: Content
    id: int = -1
    version: int = 0
    normalize: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the registry, and its initial compatibility level."""

    max_schemas: int
    max_subjects: int
    default_level: str


class Registry:
    """The registry. Methods raise RegistryError.

    Each method takes `lock`. A caller that makes several calls for one request holds it around all of them.
    """

    def __init__(self, topic: SchemasTopic, limits: Limits) -> None:
        self._topic = topic
        self._limits = limits
        # Protects all fields below. A thread that writes holds it while the broker appends the record.
        self.lock = threading.RLock()
        self._state: State | None = None
        # The last state that was read, for metrics: also after a failed write, until the next request reads the topic.
        self._known = State()
        # Parsed schemas by type, text, and references.
        self._parsed: OrderedDict[tuple[str, str, tuple[tuple[str, str], ...]], ParsedSchema] = OrderedDict()

    @property
    def state(self) -> State:
        """The state that the records of the topic make. The first call reads the topic."""
        with self.lock:
            if self._state is None:
                self._known = self._state = self._read()
            return self._state

    def _read(self) -> State:
        state = State()
        try:
            for key, value in self._topic.read():
                try:
                    state.apply(key, value)
                except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
                    log.warning("a record has not the format of a schema registry: %s", str(key)[:200])
        except (KafkaError, OSError, LookupError) as error:
            raise errors.RegistryError(50001, f"Error while reading the Kafka store: {error}") from error
        return state

    def sizes(self) -> tuple[int, int]:
        """Return the numbers of schemas and of subjects in the last known state; 0 before the first request."""
        return self._known.schemas, len(self._known.subjects)

    def clear(self) -> None:
        """Forget the state, so that the next request reads the topic again."""
        with self.lock:
            self._state, self._known = None, State()
            self._parsed.clear()

    def _write(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        state = self.state
        try:
            self._topic.append(key, value)
        except (KafkaError, OSError) as error:
            # It is unknown if the topic has the record, so the next request reads the topic.
            self._state = None
            raise errors.RegistryError(50001, f"Error while writing to the Kafka store: {error}") from error
        state.apply(key, value)

    # ---- reading

    def find(self, subject: str, version: int, *, deleted: bool = False) -> Version:
        """Return a version, or the latest one that is not deleted. Raises RegistryError if there is none."""
        with self.lock:
            found = self._find(subject, version, deleted=deleted)
            if found is not None:
                return found
            if not self.state.versions(subject, deleted=deleted):
                raise errors.subject_not_found(subject)
            raise errors.version_not_found(version)

    def _find(self, subject: str, version: int, *, deleted: bool = False) -> Version | None:
        if version == LATEST:
            return next(iter(reversed(self.state.versions(subject))), None)
        found = self.state.subjects.get(subject, {}).get(version)
        return None if found is None or (found.deleted and not deleted) else found

    def of_id(self, schema_id: int, subject: str | None = None) -> Version:
        """Return a version whose schema has an id, of the subject `subject` if possible."""
        found = [each for each in self.state.of_id(schema_id) if subject in (None, each.subject)]
        found = found or self.state.of_id(schema_id)
        if not found:
            raise errors.schema_id_not_found(schema_id)
        return found[0]

    # ---- parsing

    def parsed(self, content: Content) -> ParsedSchema:
        """Return the parsed schema, with the schemas to which it refers. Raises InvalidSchemaError."""
        with self.lock:
            # Resolve the references each time: another schema may have replaced a version that was deleted.
            referenced: dict[str, str] = {}
            self._resolve(content.references, referenced, 0)
            key = content.schema_type, content.text, tuple(referenced.items())
            if key in self._parsed:
                self._parsed.move_to_end(key)
                return self._parsed[key]
            made = parse(content.schema_type, content.text, referenced)
            if len(content.text) + sum(map(len, referenced.values())) <= _MAX_KEPT_CHARACTERS:
                self._parsed[key] = made
            if len(self._parsed) > _KEPT_SCHEMAS:
                self._parsed.popitem(last=False)
            return made

    def _resolve(self, references: Sequence[Reference], found: dict[str, str], depth: int) -> None:
        for each in references:
            if each.name in found:
                continue
            named = self._find(each.subject, each.version, deleted=True)
            if named is None:
                text = f'No schema reference found for subject "{each.subject}" and version {each.version}'
                raise errors.InvalidSchemaError(text)
            if depth > _MAX_REFERENCES or len(found) >= _MAX_REFERENCES:
                raise errors.InvalidSchemaError(f"A schema may refer to {_MAX_REFERENCES} schemas")
            self._resolve(named.content.references, found, depth + 1)
            found[each.name] = named.content.text
        if sum(map(len, found.values())) > _MAX_REFERENCED_CHARACTERS:
            raise errors.InvalidSchemaError("The schemas that a schema refers to are too large")

    def _canonical(self, subject: str, asked: Submitted, *, new: bool = False) -> tuple[Content, ParsedSchema]:
        if not asked.content.text.strip():
            raise errors.InvalidSchemaError("Empty schema")
        references = tuple(map(self._numbered, asked.content.references))
        made = self.parsed(asked.content._replace(references=references))
        if new:
            try:
                made.check_new()
            except ValueError as error:
                kind = asked.content.schema_type
                raise errors.InvalidSchemaError(f"Invalid schema of type {kind}, details: {error}") from error
        normalize = asked.normalize or bool(self.config_in_scope(subject).get("normalize"))
        text = made.normalized() if normalize else made.canonical()
        try:
            "".join([text, asked.content.contract, *(each.name + each.subject for each in references)]).encode()
        except UnicodeEncodeError as error:
            raise errors.InvalidSchemaError("The schema has a character that is half of one") from error
        return asked.content._replace(
            text=text, references=tuple(sorted(references)) if normalize else references
        ), made

    def _numbered(self, reference: Reference) -> Reference:
        """Return a reference to `latest` as one to the number of the latest version. Others stay unchanged."""
        named = self._find(reference.subject, LATEST) if reference.version == LATEST else None
        return reference if named is None else reference._replace(version=named.version)

    # ---- registering

    def lookup(self, subject: str, asked: Submitted, *, deleted: bool = False) -> Version:
        """Return the version of a subject that has this schema. Raises RegistryError if there is none."""
        with self.lock:
            found = None
            if asked.content.text:
                found = self._lookup(subject, *self._canonical(subject, asked), deleted=deleted)
            if found is not None:
                return found
            if not self.state.versions(subject, deleted=deleted):
                raise errors.subject_not_found(subject)
            raise errors.schema_not_found()

    def _lookup(self, subject: str, content: Content, made: ParsedSchema, *, deleted: bool = False) -> Version | None:
        versions = self.state.versions(subject, deleted=deleted)
        for each in reversed(versions):
            if each.content == content:
                return each
        if content.references:
            return None
        # As in Confluent's registry, a schema without references also equals one whose references resolve to the same
        # text.
        others = [each for each in versions if each.content.references]
        alike = (each for each in reversed(others) if each.content.schema_type == content.schema_type)
        return next((each for each in alike if self.parsed(each.content).resolved() == made.canonical()), None)

    def register(self, subject: str, asked: Submitted) -> Version:
        """Return the version of a subject that has this schema. Add the schema if the subject lacks it."""
        _check_name(subject)
        with self.lock:
            content, made = self._canonical(subject, asked, new=True)
            known = self._lookup(subject, content, made)
            if known is not None and asked.id in (-1, known.id):
                # An id without a version number may name the known version; another number asks for a new version.
                named = asked.id == known.id and asked.version == known.version
                if named or asked.version in (0, LATEST):
                    return known
            importing = self._check_mode(subject, asked)
            if not importing:
                details = self._details(subject, content.schema_type, made, self.state.versions(subject))
                if details:
                    raise errors.incompatible(subject, ", ".join(details))
            return self._add(subject, asked, content, importing)

    def _check_mode(self, subject: str, asked: Submitted) -> bool:
        mode = self.mode_in_scope(subject)
        about = f"Subject {subject} in context "
        if mode in ("READONLY", "READONLY_OVERRIDE"):
            raise errors.not_permitted(f"{about} is in read-only mode")
        if asked.id >= 0 and mode != "IMPORT":
            raise errors.not_permitted(f"{about} is not in import mode")
        if asked.id < 0 and mode != "READWRITE":
            raise errors.not_permitted(f"{about} is not in read-write mode")
        return mode == "IMPORT"

    def _add(self, subject: str, asked: Submitted, content: Content, importing: bool) -> Version:
        all_versions = self.state.versions(subject, deleted=True)
        following = all_versions[-1].version + 1 if all_versions else 1
        version = asked.version if asked.version > 0 else following
        if version != following and not importing:
            raise errors.InvalidSchemaError("Version is not one more than previous version")
        schema_id = asked.id if asked.id >= 0 else self.state.id_of(content)
        if schema_id is None:
            schema_id = self.state.max_id + 1
        if any(each.content != content for each in self.state.of_id(schema_id)):
            raise errors.not_permitted(f"Overwrite new schema with id {schema_id} in context  is not permitted.")
        self._check_limits(subject)
        for each in all_versions:
            comes_back = each.deleted and each.id == schema_id and each.version < version
            if comes_back and not self.state.referenced_by(subject, each.version, deleted=True):
                self._write(schema_key(subject, each.version), None)
        made = Version(subject, version, schema_id, content)
        self._write(*made.record())
        return made

    def _check_limits(self, subject: str) -> None:
        limits = self._limits
        if self.state.schemas >= limits.max_schemas:
            raise errors.not_permitted(f"The registry holds {limits.max_schemas} schemas at most: max_schemas")
        if subject not in self.state.subjects and len(self.state.subjects) >= limits.max_subjects:
            raise errors.not_permitted(f"The registry holds {limits.max_subjects} subjects at most: max_subjects")

    # ---- compatibility

    def check(self, subject: str, asked: Submitted, version: int | None) -> list[str]:
        """Return the reasons why a schema may not follow a version of the subject.

        Without a `version`, it is compared with the versions that the subject's level requires.
        """
        with self.lock:
            if version is None:
                earlier = self.state.versions(subject)
            else:
                found = self._find(subject, version)
                if found is None and version != LATEST:
                    raise errors.version_not_found(version)
                earlier = [] if found is None else [found]
            content, made = self._canonical(subject, asked, new=True)
            return self._details(subject, content.schema_type, made, earlier)

    def _details(self, subject: str, schema_type: str, made: ParsedSchema, versions: Sequence[Version]) -> list[str]:
        level = self.config_in_scope(subject)["compatibilityLevel"]
        # A generator, because the comparison ends at the first incompatible version, and the others need no parsing.
        earlier = ((each.content.schema_type, each.version, self.parsed(each.content)) for each in reversed(versions))
        found = problems(level, (schema_type, made), earlier)
        return [*found, f"{{validateFields: 'false', compatibility: '{level}'}}"] if found else []

    # ---- deleting

    def delete_version(self, subject: str, version: int, *, permanent: bool) -> int:
        """Delete a version. Return its number."""
        with self.lock:
            found = self.find(subject, version, deleted=True)
            if found.deleted and not permanent:
                raise errors.version_soft_deleted(subject, found.version)
            self._check_writable(subject)
            if self.state.referenced_by(subject, found.version, deleted=permanent):
                raise errors.reference_exists(subject, found.version)
            if not permanent:
                self._write(schema_key(subject, found.version), {**found.entry(), "deleted": True})
            elif not found.deleted:
                raise errors.version_not_soft_deleted(subject, found.version)
            else:
                self._write(schema_key(subject, found.version), None)
                self._forget_settings(subject)
            return found.version

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete the versions of a subject. Return their numbers."""
        with self.lock:
            everything = self.state.versions(subject, deleted=True)
            if not everything:
                raise errors.subject_not_found(subject)
            found = everything if permanent else self.state.versions(subject)
            if not found:
                raise errors.subject_soft_deleted(subject)
            self._check_writable(subject)
            for each in found:
                others = self.state.referenced_by(subject, each.version, deleted=permanent)
                if any(one.subject != subject for one in others):
                    raise errors.reference_exists(subject, each.version)
                if permanent and not each.deleted:
                    raise errors.subject_not_soft_deleted(subject)
            if permanent:
                for each in reversed(found):
                    self._write(schema_key(subject, each.version), None)
                self._forget_settings(subject)
            else:
                value = {"subject": subject, "version": found[-1].version}
                self._write(setting_key("DELETE_SUBJECT", subject), value)
            return [each.version for each in found]

    def _forget_settings(self, subject: str) -> None:
        if subject in self.state.subjects:
            return
        if subject in self.state.modes:
            self._write(setting_key("MODE", subject), None)
        if subject in self.state.configs:
            self._write(setting_key("CONFIG", subject), None)

    def _check_writable(self, subject: str | None) -> None:
        if self.mode_in_scope(subject) in ("READONLY", "READONLY_OVERRIDE"):
            raise errors.not_permitted(f"Subject {subject or 'null'} in context  is in read-only mode")

    # ---- levels and modes

    def config_in_scope(self, subject: str | None) -> dict[str, Any]:
        """Return the settings that apply to a subject: its own ones, or else the global ones."""
        with self.lock:
            configs = self.state.configs
            own = configs.get(subject, configs.get(None, {}))
            return {"compatibilityLevel": self._limits.default_level, **own}

    def config_of(self, subject: str | None) -> dict[str, Any] | None:
        """Return the subject's own settings, or None. Without a subject, return the global settings."""
        with self.lock:
            is_set = subject is None or subject in self.state.configs
            return self.config_in_scope(subject) if is_set else None

    def set_config(self, subject: str | None, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change the settings of a subject, or the global settings. Return the changed settings."""
        level = changes.get("compatibilityLevel")
        if level is not None and level not in LEVELS:
            raise errors.invalid_level()
        with self.lock:
            self._check_place(subject, self.state.configs)
            self._check_writable(subject)
            about = {} if subject is None else {"subject": subject}
            merged = {**about, **self.state.configs.get(subject, {}), **changes}
            value = {key: each for key, each in merged.items() if each is not None}
            self._write(setting_key("CONFIG", subject), value)
            return value

    def delete_config(self, subject: str | None) -> dict[str, Any]:
        """Remove the settings of a subject, or the global settings. Return the removed settings."""
        with self.lock:
            found = self.config_of(subject)
            if found is None:
                raise errors.subject_not_found(str(subject))
            self._check_writable(subject)
            self._write(setting_key("CONFIG", subject), None)
            return found

    def mode_in_scope(self, subject: str | None) -> str:
        """Return the mode that applies to a subject: its own one, or else the global one."""
        with self.lock:
            of_all = self.state.modes.get(None, "READWRITE")
            return of_all if of_all == "READONLY_OVERRIDE" else self.state.modes.get(subject, of_all)

    def set_mode(self, subject: str | None, mode: str, *, force: bool) -> None:
        """Change the mode of a subject, or the global mode."""
        if mode not in MODES:
            raise errors.forward_mode() if mode == "FORWARD" else errors.invalid_mode()
        with self.lock:
            self._check_place(subject, self.state.modes)
            if mode == "IMPORT" and self.mode_in_scope(subject) != "IMPORT" and not force:
                self._make_way(subject)
            about = {} if subject is None else {"subject": subject}
            self._write(setting_key("MODE", subject), {**about, "mode": mode})

    def _make_way(self, subject: str | None) -> None:
        found = [each for each in self.state.all_versions() if subject in (None, each.subject)]
        if not all(each.deleted for each in found):
            raise errors.not_permitted("Cannot import since found existing subjects")
        for each in found:
            if self.state.referenced_by(each.subject, each.version, deleted=True):
                raise errors.reference_exists(each.subject, each.version)
        for each in found:
            self._write(schema_key(each.subject, each.version), None)

    def delete_mode(self, subject: str | None) -> str:
        """Remove the mode of a subject, or the global mode. Return the removed mode."""
        with self.lock:
            found = self.mode_in_scope(None) if subject is None else self.state.modes.get(subject)
            if found is None:
                raise errors.subject_not_found(str(subject))
            self._write(setting_key("MODE", subject), None)
            return found

    def _check_place(self, subject: str | None, table: Mapping[str | None, object]) -> None:
        if subject is not None:
            _check_name(subject)
        most = self._limits.max_subjects
        if subject is not None and subject not in table and len(table) - (None in table) >= most:
            raise errors.not_permitted(f"The registry holds the settings of {most} subjects at most: max_subjects")


def _check_name(subject: str) -> None:
    if subject in _RESERVED or any(ord(each) < 32 for each in subject):
        raise errors.invalid_subject(subject)
