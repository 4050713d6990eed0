"""Settings of `record_encryption`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from klamm import setting


@dataclass(frozen=True, slots=True)
class RecordEncryptionSettings:
    """`[listeners.NAME.record_encryption]`."""

    topics: tuple[str, ...] = setting(
        ("*",), doc="Topics whose values are encrypted when they are produced, names or patterns as in `orders-*`."
    )
    keys_file: Path | None = setting(
        None, doc="TOML file with the key encryption keys, see docs/filters.md. Read again at SIGHUP.", private=True
    )
    keys_function: str | None = setting(
        None,
        doc="`module:function` in place of a file: returns the content of the file, a mapping with `current` and "
        "`keys`. Called at the start and at SIGHUP.",
    )
    plain_values: str = setting(
        "pass",
        doc="Treatment of values in these topics that are not encrypted: `pass` returns them, `refuse` makes the "
        "Fetch fail.",
        choices=("pass", "refuse"),
    )
    data_key_max_records: int = setting(
        1_000_000, doc="Number of values that are encrypted with one data key.", minimum=1, maximum=2**32
    )
    data_key_max_age_ms: int = setting(3_600_000, doc="Time for which a data key is used for new values.", minimum=1000)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield problems: no source of keys or two sources, or a file that cannot be read or is wrong."""
        from klamm_filters.records.keys import read_keys

        if (self.keys_file is None) == (self.keys_function is None):
            yield "", "set either `keys_file` or `keys_function`"
        elif self.keys_file is not None:
            try:
                read_keys(self.keys_file)
            except OSError as error:
                yield "keys_file", f"{self.keys_file}: {error.strerror}"
            except ValueError as error:
                yield "keys_file", str(error)
        if self.keys_function is not None and not all(self.keys_function.partition(":")):
            yield "keys_function", f'must be "module:function", not "{self.keys_function}"'
