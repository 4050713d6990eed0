"""The escaping of control characters in log lines, so that no client can forge a line."""

from __future__ import annotations

import logging
from typing import Final

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
_INDENT: Final = "    "
LOGGED_CHARACTERS: Final = 256
"""The maximum number of characters of a client's string in a log line."""


def clipped(text: str, characters: int = LOGGED_CHARACTERS) -> str:
    """Return the text. If it is too long, return its first characters and its length. For clients' strings in logs."""
    if len(text) <= characters:
        return text
    return f"{text[:characters]}… ({len(text)} characters)"


def escape_control_characters(text: str) -> str:
    """Return the text with all unprintable characters escaped as in Python: a newline becomes `\\n`.

    Unprintable are control and format characters, line separators and lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


class LogFields(str):
    """The fields at the start of a message, as text `name=value name=value`. `JsonFormatter` reads `fields`."""

    fields: dict[str, str]

    def __new__(cls, **fields: str) -> LogFields:
        """Return the text of the fields, in their order."""
        made = super().__new__(cls, " ".join(f"{name}={value}" for name, value in fields.items()))
        made.fields = fields
        return made


class EscapingFormatter(logging.Formatter):
    """A formatter that writes each record as one line, even if its arguments have line breaks.

    The traceback follows, indented and escaped. `klamm serve` installs the formatter for all handlers, so that no
    logging call has to escape a client's text.
    """

    def __init__(self, format: str = FORMAT) -> None:
        super().__init__(format)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, followed by its traceback and stack, if it has them."""
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        lines = [escape_control_characters(self.formatMessage(record))]
        # Not `record.exc_text`, because another formatter may have stored an unescaped text there.
        if record.exc_info:
            lines += _indented(self.formatException(record.exc_info))
        elif record.exc_text:
            lines += _indented(record.exc_text)
        if record.stack_info:
            lines += _indented(self.formatStack(record.stack_info))
        return "\n".join(lines)


def _indented(text: str) -> list[str]:
    return [_INDENT + escape_control_characters(line) for line in text.split("\n")]
