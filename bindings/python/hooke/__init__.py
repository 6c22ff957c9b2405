"""Hooke: elastic averaging for the models people already have.

    import hooke.torch as hooke          # PyTorch
    with hooke.join(model, optimizer, center="host:2222", period=10) as w:
        ...                              # the loop stays as it is

Here are the parts that need NumPy only: ``join`` over arrays, a center in this
process, checkpoints. ``hooke.torch`` and ``hooke.jax`` have those of their
frameworks. ``python -m hooke`` is the program.
"""
from __future__ import annotations

from . import _c
from ._arrays import ArrayWorker, join
from ._center import Center, start_center
from ._checkpoint import load, save
from ._errors import HookeError
from ._exchange import Stats
from ._keys import generate_key
from ._observe import center_arrays
from ._spawn import spawn
from ._worker import Worker

__version__ = (f"{_c.HK_VERSION_MAJOR}.{_c.HK_VERSION_MINOR}."
               f"{_c.HK_VERSION_PATCH}")

__all__ = ["ArrayWorker", "Center", "HookeError", "Stats", "Worker",
           "center_arrays", "generate_key", "join", "load", "save", "spawn",
           "start_center"]
