"""The command `klamm plugins new`, which writes a package to start from: parts, their settings and their tests."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from klamm.cli.templates import KINDS, PACKAGE
from klamm.shared.version import PLUGIN_API, __version__

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_WORD: Final = re.compile(
    r"(?<![A-Z_])(?:(?:NAME|MODULE|PART|CLASS|HOOK|FILE|SUMMARY|SENTENCE|DESCRIPTION|MINIMUM|APIVERSION)(?![A-Z_])"
    r"|CLASS(?=Settings|Layer|Authenticator|Server))"
)
_EXIT_USAGE: Final = 2


def run(arguments: Sequence[str]) -> int:
    """Write the package, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="klamm plugins new", description="Write a package with parts, which passes its own tests at once."
    )
    parser.add_argument("name", metavar="NAME", help="of the distribution, e.g. klamm-audit-trail")
    parser.add_argument(
        "--kind",
        choices=sorted(KINDS),
        action="append",
        help="kind of part that it provides, may be repeated; default: filter",
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
        for path, text in package(options.name, options.kind or ["filter"]).items():
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


def package(name: str, kinds: Sequence[str]) -> dict[str, str]:
    """Return the texts of the files of a package, by their paths in the package.

    A part has the package's name. If there are several parts, each name ends with its kind.
    """
    short = name.removeprefix("klamm-")
    module = "klamm_" + short.replace("-", "_")
    kinds = list(dict.fromkeys(kinds))
    together = ", ".join(kind.replace("_", " ") for kind in kinds)
    summary = KINDS[kinds[0]].summary if len(kinds) == 1 else ""
    words = {
        "NAME": name,
        "MODULE": module,
        "PART": short.replace("-", "_"),
        "SUMMARY": summary or together,
        "DESCRIPTION": f"{together.capitalize()} for klamm{summary and ': ' + summary}",
        "MINIMUM": ".".join(__version__.split(".")[:2]),
        "APIVERSION": str(PLUGIN_API),
    }
    parts = [(kind, _words_of(kind, short, len(kinds) > 1)) for kind in kinds]
    files = {
        "pyproject.toml": _filled(PACKAGE["pyproject.toml"], words),
        ".github/workflows/tests.yml": PACKAGE["tests.yml"],
        "README.md": _filled(PACKAGE["README.md"], words)
        + "\n".join(_filled(KINDS[kind].toml, {**words, **own}) for kind, own in parts if KINDS[kind].toml),
        f"{module}/__init__.py": _filled(PACKAGE["__init__.py"], words)
        + "".join(_filled(_hook(kind), {**words, **own}) for kind, own in parts),
    }
    for kind, own in parts:
        end = "" if own["FILE"] == "part" else f"_{kind}"
        files[f"{module}/{own['FILE']}.py"] = _filled(KINDS[kind].part, {**words, **own})
        files[f"tests/test_{module}{end}.py"] = _filled(KINDS[kind].tests, {**words, **own})
    return files


def _words_of(kind: str, short: str, is_one_of_several: bool) -> dict[str, str]:
    summary = KINDS[kind].summary
    end = f"-{kind.replace('_', '-')}" if is_one_of_several else ""
    return {
        "PART": f"{short}{end}".replace("-", "_"),
        "CLASS": "".join(word.capitalize() for word in f"{short}{end}".split("-")),
        "HOOK": KINDS[kind].hook,
        "FILE": kind if is_one_of_several else "part",
        "SUMMARY": summary,
        "SENTENCE": summary[0].upper() + summary[1:],
    }


def _hook(kind: str) -> str:
    settings = '\n        settings="MODULE.FILE:CLASSSettings",' if "CLASSSettings" in KINDS[kind].part else ""
    return PACKAGE["hook"].replace("SETTINGS", settings)


def _filled(text: str, words: Mapping[str, str]) -> str:
    return _WORD.sub(lambda found: words[found[0]], text.replace("MODULE.part", "MODULE.FILE"))
