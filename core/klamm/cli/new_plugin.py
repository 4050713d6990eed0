"""The command `klamm plugins new`, which writes a package to start from: a part, its settings and its tests."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from klamm.cli.templates import KINDS
from klamm.cli.templates.package import INIT, PROJECT, README, Template

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_WORD: Final = re.compile(
    r"(?<![A-Z])(?:(?:NAME|MODULE|PART|CLASS|HOOK|KIND|SUMMARY|SENTENCE)(?![A-Z])|CLASS(?=Settings|Layer|Authenticator|Server))"
)
_EXIT_USAGE: Final = 2


def run(arguments: Sequence[str]) -> int:
    """Write the package, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="klamm plugins new", description="Write a package with one part, which passes its own tests at once."
    )
    parser.add_argument("name", metavar="NAME", help="of the distribution, e.g. klamm-audit-trail")
    parser.add_argument(
        "--kind", choices=sorted(KINDS), default="filter", help="kind of part that it provides; default: filter"
    )
    parser.add_argument("--in", dest="folder", metavar="DIR", type=Path, default=Path(), help="where; default: here")
    options = parser.parse_args(list(arguments))
    if not _NAME.fullmatch(options.name):
        print(
            f'klamm plugins new: "{options.name}" is not a valid name: use words of a-z and 0-9, joined by -',
            file=sys.stderr,
        )
        return _EXIT_USAGE
    target = options.folder / options.name
    try:
        for path, text in package(options.name, options.kind).items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as out:
                out.write(text)
    except FileExistsError as error:
        print(f"klamm plugins new: {error.filename} exists already; nothing was overwritten", file=sys.stderr)
        return _EXIT_USAGE
    except OSError as error:
        print(f"klamm plugins new: {error.filename}: {error.strerror}", file=sys.stderr)
        return _EXIT_USAGE
    print(f"{target} written; next: cd {target} && pip install -e . && python -m pytest")
    return 0


def package(name: str, kind: str) -> dict[str, str]:
    """Return the texts of the files of a package, by their paths in the package."""
    template: Template = KINDS[kind]
    short = name.removeprefix("klamm-")
    module = "klamm_" + short.replace("-", "_")
    words = {
        "NAME": name,
        "MODULE": module,
        "PART": short.replace("-", "_"),
        "CLASS": "".join(word.capitalize() for word in short.split("-")),
        "HOOK": template.hook,
        "KIND": kind.replace("_", " ").capitalize(),
        "SUMMARY": template.summary,
        "SENTENCE": template.summary[0].upper() + template.summary[1:],
    }
    settings = '\n        settings="MODULE.part:CLASSSettings",' if "CLASSSettings" in template.part else ""

    def filled(text: str) -> str:
        return _WORD.sub(lambda found: words[found[0]], text.replace("SETTINGS", settings))

    return {
        "pyproject.toml": filled(PROJECT),
        "README.md": filled(README + template.toml),
        f"{module}/__init__.py": filled(INIT),
        f"{module}/part.py": filled(template.part),
        f"tests/test_{module}.py": filled(template.tests),
    }
