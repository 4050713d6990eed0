"""The format of a file of users: one user and one SCRAM verifier in each line. The store `file` and `klamm users` use
it.
"""

from __future__ import annotations

from klamm.sasl import ScramCredential


def text_of(data: bytes) -> str:
    """Return the text of a file. Raises ValueError, which does not quote the file's content."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8") from error


def parse_users(text: str) -> list[tuple[str, ScramCredential]]:
    """Return the users and credentials in a file's text: `alice:SCRAM-SHA-256$…`; `#` begins a comment line.

    Raises ValueError, which names the line but does not quote a verifier.
    """
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        user, colon, verifier = line.partition(":")
        if not colon or not user:
            raise ValueError(f"line {number}: is not USER:VERIFIER")
        try:
            entries.append((user, ScramCredential.from_text(verifier.strip())))
        except ValueError as error:
            raise ValueError(f'line {number}: the verifier of user "{user}" {error}') from error
    return entries
