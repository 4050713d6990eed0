"""`ConsoleError`, and what turns other exceptions into it."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from struct import error as StructError

from klamm import KafkaError
from klamm_console.entry import LoginError


class ConsoleError(Exception):
    """Raised for a request that cannot be answered. It has HTTP's status, and Kafka's name of the error if it is one of
    Kafka's.
    """

    def __init__(self, status: int, message: str, name: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.name = name


@contextlib.contextmanager
def errors() -> Iterator[None]:
    """Turn exceptions of connections and calls into ConsoleError."""
    try:
        yield
    except LoginError as error:
        raise ConsoleError(401, str(error)) from error
    except KafkaError as error:
        name = error.error_code.name
        raise ConsoleError(403 if name.endswith("AUTHORIZATION_FAILED") else 409, str(error), name) from error
    except ssl.SSLError as error:
        raise ConsoleError(502, f"TLS with the listener failed, see [console] ca_file: {error.reason}") from error
    except (OSError, EOFError) as error:
        raise ConsoleError(502, f"no answer: {error or type(error).__name__}") from error
    except (ValueError, OverflowError, StructError) as error:
        raise ConsoleError(400, f"the request cannot be sent: {error}") from error
