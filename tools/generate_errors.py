"""Writes the error codes of `core/klamm/wire/errors.py` from Kafka's own enum: `python tools/generate_errors.py`.

It needs Java and the jars. It takes over codes, names and retriability, but never the texts.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from tests.peers.kafka_jars import classpath  # noqa: E402

TARGET = ROOT / "core/klamm/wire/errors.py"


def rows_of_java() -> list[tuple[int, str, bool]]:
    """Return the code and the name of each error, and True if a client may retry after it."""
    command = ["java", "-cp", classpath(), str(ROOT / "tools/PrintErrors.java")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sorted(
        (int(code), name, retriable == "true") for code, name, retriable in map(str.split, printed.splitlines())
    )


def main() -> None:
    rows = rows_of_java()
    members = "".join(f"    {name} = {code}\n" for code, name, _ in rows)
    retriable = "".join(f"        ErrorCode.{name},\n" for _, name, can in rows if can)
    text = TARGET.read_text()
    text = re.sub(r"(?s)(    # codes: generated\n).*?(    # codes end\n)", rf"\1{members}\2", text)
    text = re.sub(r"(?s)(        # retriable: generated\n).*?(        # retriable end\n)", rf"\1{retriable}\2", text)
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
