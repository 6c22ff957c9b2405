"""Cluster keys."""
from __future__ import annotations

import ctypes
import os
from typing import Optional, Union

from . import _c
from ._errors import check
from ._library import library


def generate_key(path: Union[str, "os.PathLike[str]"],
                 name: Optional[str] = None) -> None:
    """Writes a new cluster key that only its owner can read, as ``hooke
    keygen`` does. An existing file is not overwritten."""
    key = _c.hk_key()
    text = name.encode() if name is not None else None
    check(library().hk_key_generate(text, ctypes.byref(key)))
    check(library().hk_key_save(ctypes.byref(key), os.fsencode(path)))
