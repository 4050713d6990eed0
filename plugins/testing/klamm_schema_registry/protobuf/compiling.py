"""`compiled`: makes descriptors of schemas with the compiler of Protocol Buffers (protoc), in a separate process.

The compiler is native code that reads data from clients. In a separate process it can neither crash nor block the
server. A request for the registry waits for it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

_TIMEOUT_S: Final = 20.0
_NAME: Final = "klamm_schema.proto"


def compiled(text: str, references: Mapping[str, str]) -> tuple[FileDescriptorProto, list[FileDescriptorProto]]:
    """Return the descriptors of a schema and of its imports. Raises ValueError."""
    import grpc_tools

    with tempfile.TemporaryDirectory(prefix="klamm-proto-") as name:
        folder = Path(name)
        sources = folder / "sources"
        sources.mkdir()
        for reference, content in {**references, _NAME: text}.items():
            path = PurePosixPath(reference)
            if path.is_absolute() or ".." in path.parts or "\\" in reference or ":" in reference or "\0" in reference:
                raise ValueError(f"{reference[:200]} is not the name of an import")
            target = sources / path
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(content, encoding="utf-8")
            except OSError as error:
                raise ValueError(f"{reference[:200]} is not the name of an import") from error
        result = folder / "klamm_result"
        known = Path(grpc_tools.__file__).with_name("_proto")
        arguments = [f"-I{sources}", f"-I{known}", f"--descriptor_set_out={result}", "--include_imports", _NAME]
        try:
            # Clients choose the names of the source files. `-P` and the working directory prevent that Python imports
            # such a file as a module, also if PYTHONPATH has a dot.
            run = subprocess.run(
                [sys.executable, "-P", "-m", "grpc_tools.protoc", *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
                cwd=folder,
            )
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"the schema was not compiled within {_TIMEOUT_S:g} s") from error
        if run.returncode:
            said = run.stderr.decode(errors="replace").replace(f"{_NAME}:", "").strip()
            raise ValueError(said[:2000] or "the compiler of Protocol Buffers failed")
        files = FileDescriptorSet.FromString(result.read_bytes()).file
    *imported, own = files
    return own, imported
