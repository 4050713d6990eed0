"""Detections from Sigma rules: klamm's own rules in the folder `rules`, and the rules of a user's folder.

tools/generate_detections.py compiles klamm's own rules into the folder `compiled`. So only a user's folder needs
pySigma. A rule's section `klamm` has the facts that Sigma cannot express; docs/audit/sigma.md lists its keys.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm.config import did_you_mean
from klamm_spark.errors import LakeError
from klamm_spark.findings.detections import DEFAULT_AROUND_S, DEFAULT_SENTENCE, Detection, Finding

if TYPE_CHECKING:
    from sigma.collection import SigmaCollection
    from sigma.correlations import SigmaCorrelationRule
    from sigma.rule import SigmaRule

RULES: Final = Path(__file__).with_name("rules")
_PRODUCT: Final = "kafka"
_SERVICE: Final = "audit"
KEYS: Final = ("principal", "object", "count", "detail", "sentence", "around_s", "key")
_KEY_OF: Final = {"principal": "principal", "client_address": "address"}
_QUOTED: Final = re.compile(r"""["']([^"']+)["']""")


def compiled(*folders: Path) -> Sequence[Detection]:
    """Return the detections of the rules in some folders, in the order of their names.

    Raises LakeError, whose text has the place of each invalid rule.
    """
    if importlib.util.find_spec("sigma") is None:
        raise LakeError("Sigma rules need pySigma: pip install 'klamm[sigma]'")
    from sigma.exceptions import SigmaError

    texts: dict[Path, str] = {}
    collection = _collection(folders, texts)
    found: dict[str, Detection] = {}
    problems = []
    for rule in collection.rules:
        path = rule.source.path if rule.source is not None else Path()
        try:
            about = _about(rule)
            if not rule._output:
                continue
            detection = _detection(rule, about, path)
            if detection.name in found:
                raise SigmaError(f'another rule has the name "{detection.name}"')
            found[detection.name] = detection
        except (SigmaError, NotImplementedError) as error:
            problems.append(_problem(path, texts, error))
    if problems:
        raise LakeError("\n".join(problems))
    return [found[name] for name in sorted(found)]


def _collection(folders: Sequence[Path], texts: dict[Path, str]) -> SigmaCollection:
    """Return the rules of all files. References between them are resolved."""
    from sigma.collection import SigmaCollection
    from sigma.exceptions import SigmaError, SigmaRuleLocation

    collections, problems = [], []
    for path in _files(folders):
        texts[path] = path.read_text(encoding="utf-8")
        documents, problem = _documents(path, texts[path])
        if problem:
            problems.append(problem)
            continue
        # Do not resolve references yet, because they may name rules of other files.
        part = SigmaCollection.from_dicts(
            documents, True, SigmaRuleLocation(path), collect_filters=True, resolve_references=False
        )
        problems += [_problem(path, texts, error) for error in part.errors]
        collections.append(part)
    if problems:
        raise LakeError("\n".join(problems))
    merged = SigmaCollection.merge(collections, resolve_references=False)
    try:
        merged.resolve_rule_references()
    except SigmaError as error:
        words = _QUOTED.findall(str(error))
        paths = [path for path, text in texts.items() if any(word in text for word in words)]
        raise LakeError(_problem(paths[-1] if paths else folders[-1], texts, error)) from error
    return merged


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        if not folder.is_dir():
            raise LakeError(f"{folder}: is no folder of Sigma rules")
        found = sorted(path for path in folder.rglob("*") if path.suffix in (".yml", ".yaml"))
        if not found:
            raise LakeError(f"{folder}: has no Sigma rules: no file ends in .yml")
        yield from found


def _documents(path: Path, text: str) -> tuple[list[Any], str]:
    """Return the documents of a file, and an error text, which is empty if there is no error."""
    import yaml
    from sigma.rule.base import SigmaYAMLLoader

    try:
        documents = list(yaml.load_all(text, SigmaYAMLLoader))
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        return [], f"{path}{line}: {error.problem}"
    except yaml.YAMLError as error:
        return [], f"{_place(path, text, str(error))}: {error}"
    if not all(document is None or isinstance(document, dict) for document in documents):
        return [], f"{path}:1: a rule is a mapping of keys and values"
    return documents, ""


def _problem(path: Path, texts: dict[Path, str], error: Exception) -> str:
    message = str(error.args[0]) if error.args else type(error).__name__
    return f"{_place(path, texts.get(path, ''), message)}: {message}"


def _place(path: Path, text: str, message: str) -> str:
    """Return the path, with the number of the line that has the first word quoted in the message."""
    for word in _QUOTED.findall(message):
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(rf"(?<![\w.]){re.escape(word.strip())}(?![\w.])", line):
                return f"{path}:{number}"
    return f"{path}:1"


def _about(rule: SigmaRule | SigmaCorrelationRule) -> dict[str, Any]:
    """Return a rule's section `klamm`. Raises SigmaError if the section or the log source is invalid."""
    from sigma.exceptions import SigmaError, SigmaLogsourceError
    from sigma.rule import SigmaRule

    about = rule.custom_attributes.get("klamm", {})
    if not isinstance(about, dict):
        raise SigmaError('the section "klamm" is a mapping of keys and values')
    for key in about:
        if key not in KEYS:
            raise SigmaError(f'the section klamm has no key "{key}"{did_you_mean(str(key), KEYS)}')
    if isinstance(rule, SigmaRule):
        source = rule.logsource
        if source.product != _PRODUCT or source.service not in (None, _SERVICE) or source.category:
            raise SigmaLogsourceError(f'the log source is "product": "{_PRODUCT}" and "service": "{_SERVICE}"')
    return about


def _detection(rule: SigmaRule | SigmaCorrelationRule, about: dict[str, Any], path: Path) -> Detection:
    """Return the detection of a rule. Raises SigmaError, NotImplementedError."""
    from sigma.correlations import SigmaCorrelationRule
    from sigma.exceptions import SigmaError

    from klamm_spark.findings.sigma_sql import query_of

    level = "medium" if rule.level is None else rule.level.name.lower()
    key = about.get("key", ())
    if isinstance(key, str):
        key = (key,)
    if not key:
        grouped = (rule.group_by or ()) if isinstance(rule, SigmaCorrelationRule) else ()
        key = tuple(_KEY_OF[name] for name in grouped if name in _KEY_OF) or ("principal", "address", "object")
    for column in key:
        if column not in Finding._fields:
            raise SigmaError(f'a finding has no "{column}"{did_you_mean(column, Finding._fields)}')
    return Detection(
        rule.name or path.stem,
        rule.title or path.stem,
        "low" if level == "informational" else level,
        " ".join((rule.description or rule.title or "").split()),
        tuple(key),
        query_of(rule, about),
        about.get("sentence", DEFAULT_SENTENCE),
        int(about.get("around_s", DEFAULT_AROUND_S)),
    )
