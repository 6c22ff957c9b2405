"""Reading a center from outside: nobody joins, nothing changes."""
from __future__ import annotations

import ctypes
from typing import Any, Optional

import numpy as np

from . import _c
from ._errors import check
from ._exchange import NUMPY_TYPES
from ._library import library
from ._options import Addresses, KeyLike, addresses_of, connect_options
from ._thread import CallThread

# Entries that are no tensors of the model's state: a worker's moments, buffers
# that a state_dict leaves out (persistent=False), and, without elements,
# "tied/a=b": a is another name of b.
OPTIMIZER, UNSAVED, TIED = "optimizer/", "unsaved/", "tied/"


def model_state(found: "dict[str, np.ndarray[Any, Any]]"
                ) -> "dict[str, np.ndarray[Any, Any]]":
    """The tensors of the model, under every name that they have there."""
    out = {n: a for n, a in found.items()
           if not n.startswith((OPTIMIZER, UNSAVED, TIED))}
    for n in found:
        if n.startswith(TIED):
            name, _, other = n[len(TIED):].partition("=")
            if other in out:
                out[name] = out[other]
    return out


def center_arrays(center: Optional[Addresses] = None,
                  key: Optional[KeyLike] = None, *,
                  insecure: bool = False, seconds: float = 60.0,
                  average: bool = False, everything: bool = False
                  ) -> "dict[str, np.ndarray[Any, Any]]":
    """A consistent copy of the center's values, by plain names.

    average     returns the average of the methods ``downpour_averaged`` and
                ``downpour_moving`` instead
    everything  also returns entries outside of the model: workers' moments,
                and buffers that a state_dict leaves out
    """
    thread = CallThread("hooke-observe")
    try:
        found: dict[str, np.ndarray[Any, Any]] = thread.start(
            lambda: _read(addresses_of(center), key, insecure, seconds,
                          average)).result()
    finally:
        thread.stop()
    return found if everything else model_state(found)


def _read(addresses: list[str], key: Optional[KeyLike], insecure: bool,
          seconds: float, average: bool) -> "dict[str, np.ndarray[Any, Any]]":
    lib, handle = library(), ctypes.c_void_p()
    o, keep = connect_options(addresses, key, insecure=insecure,
                              seconds=seconds)
    o.observer = 1
    check(lib.hk_center_connect(ctypes.byref(o), None, ctypes.byref(handle)))
    del keep
    try:
        return _snapshot(handle, int(seconds * 1000), average)
    finally:
        lib.hk_center_destroy(handle)


def _snapshot(handle: ctypes.c_void_p, wait_ms: int, average: bool
              ) -> "dict[str, np.ndarray[Any, Any]]":
    lib = library()
    info, l = _c.hk_center_info(), _c.hk_layout_info()
    check(lib.hk_center_get_info(handle, ctypes.byref(info)))
    check(lib.hk_layout_get_info(info.layout, ctypes.byref(l)))
    values = np.zeros(int(l.n), np.float32)
    side = np.zeros(int(l.side_bytes), np.uint8)
    part = _c.HK_CENTER_AVERAGE if average else _c.HK_CENTER_VALUES
    check(lib.hk_center_snapshot(
        handle, part, wait_ms,
        values.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
        side.ctypes.data if side.size else None, None))
    out = {}
    for i in range(int(l.entry_count)):
        e = lib.hk_layout_entry(info.layout, i).contents
        name = e.name.decode()
        dims = tuple(e.shape.dim[:e.shape.rank])
        if info.shares[i] == _c.HK_SHARE_LOCAL:
            continue
        if e.dtype == _c.HK_F32:
            flat = values[e.offset:e.offset + e.count]
        else:
            kind = np.dtype(NUMPY_TYPES[e.dtype])
            flat = side[e.offset:e.offset + e.count * kind.itemsize].view(kind)
        out[name] = flat.reshape(dims).copy()
    return out
