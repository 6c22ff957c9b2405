"""The one exception of the package."""
from __future__ import annotations

from typing import Any

from ._library import library


class HookeError(RuntimeError):
    """A call of the library failed; the text is the library's own.

    ``status`` is its name: ``"HK_E_TIMEOUT"``, ``"HK_E_UNAVAILABLE"``...
    ``values``: of ``spawn`` whose workers failed, what the center has; else None.
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
    raise HookeError(text or name, name)
