"""Writes `core/klamm/wire/messages/` from descriptions of Kafka's messages.

    python tools/generate_messages.py              write, from tools/messages/descriptions.json
    python tools/generate_messages.py --from-jars  refresh the descriptions from the `kafka-clients` jars first
    python tools/generate_messages.py --check      write nothing; list the files that differ from what would be written

The descriptions hold names, types and versions. Only `--from-jars` needs the network (Maven, once).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from tools.messages.api_keys import render_api_keys  # noqa: E402
from tools.messages.descriptions import COMMITTED, EXTRA, as_committed, committed, from_jars  # noqa: E402
from tools.messages.entities import render_entity_fields  # noqa: E402
from tools.messages.methods import MethodsWriter  # noqa: E402
from tools.messages.module import HEAD, Module  # noqa: E402
from tools.messages.reader import ReaderFunction  # noqa: E402
from tools.messages.schema import Raw, Schema, snake  # noqa: E402
from tools.messages.struct_class import StructWriter  # noqa: E402
from tools.messages.writer import WriterFunction  # noqa: E402

WIRE = Path("core/klamm/wire")


def renamed(schemas: list[Schema]) -> dict[str, dict[str, str]]:
    """Class names, by message and struct, where request and response each have a struct of that name."""
    rename: dict[str, dict[str, str]] = {}
    if len(schemas) == 2:
        for shared in schemas[0].structs.keys() & schemas[1].structs.keys():
            rename.setdefault(schemas[0].name, {})[shared] = "Request" + shared
            rename.setdefault(schemas[1].name, {})[shared] = "Response" + shared
    return rename


def render(name: str, schemas: list[Schema]) -> str:
    """The module of one API (request and response), or of one schema that is no API."""
    module = Module(renamed(schemas))
    for schema in schemas:
        for struct in schema.structs.values():
            StructWriter(module, schema, struct, root=False).write_class()
        root = StructWriter(module, schema, schema.root, root=True)
        root.write_class()
        MethodsWriter(root).write()
    for schema in schemas:
        for struct in [*schema.structs.values(), schema.root]:
            writer = StructWriter(module, schema, struct, root=False)
            for suffix, span in writer.variants():
                ReaderFunction(writer, suffix, span).write()
                WriterFunction(writer, suffix, span).write()
    return module.text(name, schemas)


def generate(raws: dict[str, Raw]) -> dict[Path, str]:
    """Every module to be written, by its path below `ROOT`."""
    files: dict[Path, str] = {}
    rows = []
    names = sorted(
        (raw["apiKey"], name.removesuffix("Request")) for name, raw in raws.items() if raw["type"] == "request"
    )
    for key, name in names:
        schemas = [Schema(raws[f"{name}Request"]), Schema(raws[f"{name}Response"])]
        files[WIRE / "messages" / f"{snake(name)}.py"] = render(name, schemas)
        request = schemas[0]
        flexible = request.flexible.low if request.flexible else 32767
        rows.append(
            f'    ApiSpec({key}, "{name}", "{snake(name)}", {request.offered.low}, {request.offered.high},'
            f" {request.versions.low}, {request.versions.high}, {flexible}),"
        )
    for name in EXTRA:
        files[WIRE / "messages" / f"{snake(name)}.py"] = render(name, [Schema(raws[name])])
    files[WIRE / "messages/__init__.py"] = (
        HEAD.format(doc="One module per API: its request and its response.").split("\n\nfrom")[0] + "\n"
    )
    files[WIRE / "entity_fields.py"] = render_entity_fields(raws)
    members = [f"    {snake(name).upper()} = {key}" for key, name in names]
    files[WIRE / "api_keys.py"] = render_api_keys("\n".join(members), "\n".join(rows))
    return files


def formatted(files: dict[Path, str]) -> dict[Path, str]:
    """The same, as ruff formats it."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            target = Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        config = str(ROOT / "pyproject.toml")
        for arguments in (["check", "--fix", "--select", "I,F401,UP", "--exit-zero"], ["format"]):
            subprocess.run(
                [sys.executable, "-m", "ruff", *arguments, "--quiet", "--config", config, folder], check=True
            )
        return {path: (Path(folder) / path).read_text() for path in files}


def stale_files(files: dict[Path, str]) -> list[Path]:
    """Those that are missing or different, and modules beside them that nothing describes; paths below `ROOT`."""
    stale = [path for path, text in files.items() if not (ROOT / path).exists() or (ROOT / path).read_text() != text]
    present = {path.relative_to(ROOT) for path in (ROOT / WIRE / "messages").glob("*.py")}
    return stale + sorted(present - files.keys())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--from-jars", action="store_true", help="read the descriptions from the jars")
    arguments = parser.parse_args()
    raws = from_jars() if arguments.from_jars else committed()
    files = formatted(generate(raws))
    if arguments.from_jars:
        files[COMMITTED.relative_to(ROOT)] = as_committed(raws)
    stale = stale_files(files)
    if arguments.check:
        print("\n".join(f"stale: {path}" for path in stale) or "up to date")
        return 1 if stale else 0
    for path in stale:
        target = ROOT / path
        if path in files:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(files[path])
        else:
            target.unlink()
    print(f"{len(stale)} of {len(files)} files written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
