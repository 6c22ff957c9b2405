"""The one exception of the package."""
from __future__ import annotations

import re
from typing import Any

from ._library import library

# Names of C options in messages of the library, and those of Python. Times in
# parentheses only: elsewhere their value in milliseconds stands beside them.
_NAMES = {"(connect_ms)": "(connect_seconds)", "(lost_ms)": "(lost_seconds)",
          "(wait_ms)": "(wait_seconds)", "(lease_ms)": "(lease_seconds)",
          "num_worker": "workers", "communication_period": "period"}
_NAME = re.compile("|".join(re.escape(name) for name in _NAMES))


def in_python(text: str) -> str:
    """A message of the library with the names of Python's parameters."""
    return _NAME.sub(lambda m: _NAMES[m.group()], text)


class HookeError(RuntimeError):
    """A call of the library failed; the text is the library's message.

    ``status`` is its name: ``"HK_E_TIMEOUT"``, ``"HK_E_UNAVAILABLE"``...
    ``values``: the center's values if workers of ``spawn`` failed, else None.
    """

    values: Any = None

    def __init__(self, text: str, status: str = "HK_E_INVALID_ARG") -> None:
        super().__init__(text)
        self.status = status


def check(status: int) -> None:
    """Raises what the calling thread's last call left behind."""
    if status == 0:
        return
    lib = library()
    name = lib.hk_status_string(status).decode()
    text = lib.hk_last_error().decode(errors="replace")
    raise HookeError(in_python(text) or name, name)
