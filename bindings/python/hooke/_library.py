"""Finds and loads the shared library and the program.

Looked for in this order:

1. ``HOOKE_LIBRARY`` (a file) and ``HOOKE_PROGRAM``, if they are set;
2. this package's own folder, where a wheel has them;
3. the build tree, when the package is used from a checkout;
4. the system.
"""
from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
from pathlib import Path
from typing import Any, Iterator, Optional

from . import _c

_HERE = Path(__file__).resolve().parent
_BUILD = _HERE.parents[2] / "build" / "release"
_NAMES = ("libhooke.so",
          f"libhooke.so.{_c.HK_VERSION_MAJOR}.{_c.HK_VERSION_MINOR}",
          "libhooke.dylib")


def _library_paths() -> Iterator[str]:
    given = os.environ.get("HOOKE_LIBRARY")
    if given:
        yield given  # whoever names one wants this one
        return
    for folder in (_HERE / "lib", _HERE, _BUILD):
        for name in _NAMES:
            if (folder / name).is_file():
                yield str(folder / name)
    found = ctypes.util.find_library("hooke")
    if found:
        yield found


def find_program() -> str:
    """The path of the ``hooke`` program."""
    given = os.environ.get("HOOKE_PROGRAM")
    if given:
        return given
    for folder in (_HERE / "bin", _HERE, _BUILD):
        if os.access(folder / "hooke", os.X_OK) and (folder / "hooke").is_file():
            return str(folder / "hooke")
    found = shutil.which("hooke")
    if found is None:
        raise FileNotFoundError(
            "the hooke program is neither in this package nor on the PATH; "
            "set HOOKE_PROGRAM to its path")
    return found


class Library:
    """The functions of the shared library, each with its prototype."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._handle = ctypes.CDLL(path)  # RTLD_LOCAL; calls release the GIL

    def __getattr__(self, name: str) -> Any:
        if name not in _c.PROTOTYPES:
            raise AttributeError(name)
        function = getattr(self._handle, name)
        function.restype, function.argtypes = _c.PROTOTYPES[name]
        setattr(self, name, function)
        return function


_loaded: Optional[Library] = None


def library() -> Library:
    """The loaded library. Raises ImportError with every path that was tried."""
    global _loaded
    if _loaded is not None:
        return _loaded
    tried = []
    for path in _library_paths():
        try:
            made = Library(path)
        except OSError as error:
            tried.append(str(error))
            continue
        _check_version(made)
        _loaded = made
        return made
    raise ImportError("hooke: no shared library: " + (
        "; ".join(tried) or "libhooke is neither in this package, in a build "
                            "tree nor on the system; set HOOKE_LIBRARY to "
                            "its path"))


def _check_version(made: Library) -> None:
    running = made.hk_version().decode()
    wanted = f"{_c.HK_VERSION_MAJOR}.{_c.HK_VERSION_MINOR}"
    if running.rsplit(".", 1)[0] != wanted:
        raise ImportError(f"hooke: {made.path} has version {running}, but "
                          f"this package needs {wanted}; install both from "
                          "one release")
