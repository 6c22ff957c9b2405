"""Workers whose values are NumPy arrays, and what JAX's are made of."""
from __future__ import annotations

from typing import Any, Mapping, Optional, Union

import numpy as np

from . import _c
from ._errors import HookeError
from ._exchange import NUMPY_TYPES, Entry, Exchange, Layout
from ._options import Addresses, KeyLike, Options
from ._worker import Worker

Arrays = Union[Any, Mapping[str, Any]]

_SIDE = {np.dtype(np.int32): _c.HK_I32, np.dtype(np.int64): _c.HK_I64,
         np.dtype(np.uint8): _c.HK_U8, np.dtype(np.bool_): _c.HK_BOOL}


def float_buffer(x: Any) -> "np.ndarray[Any, Any]":
    """x as an array over its own memory."""
    if isinstance(x, np.ndarray):
        a = x
    else:
        try:
            m = memoryview(x)
        except TypeError:
            raise HookeError(
                f"x is a {type(x).__name__}, not a float32 buffer; give "
                "several arrays as a dict with their names") from None
        if m.format != "f" or not m.c_contiguous:
            raise HookeError(f"x is a buffer of format {m.format!r}; it has "
                             "to be contiguous float32 ('f')")
        a = np.frombuffer(m, np.float32)
    if a.dtype != np.float32 or not a.flags.c_contiguous:
        raise HookeError(f"x has type {a.dtype} and is "
                         f"{'' if a.flags.c_contiguous else 'not '}contiguous; "
                         "it has to be contiguous float32")
    if not a.flags.writeable:
        raise HookeError("x is read-only, but exchanges change it in place; "
                         "give a writable array")
    if a.size == 0:
        raise HookeError("x is empty")
    return a


class Flat:
    """Named arrays as one vector and a side block."""

    def __init__(self, arrays: "Mapping[str, np.ndarray[Any, Any]]") -> None:
        if not arrays:
            raise HookeError("x has no arrays")
        self.layout = Layout([self._entry(n, a) for n, a in arrays.items()])
        self.values = np.zeros(max(self.layout.n, 1), np.float32)
        self.side = np.zeros(max(self.layout.side_bytes, 1), np.uint8)
        self._shapes = {n: (a.shape, a.dtype) for n, a in arrays.items()}
        self._views = {
            p.entry.name: self._view(p.entry, p.offset, p.size)
            for p in self.layout.places}

    @staticmethod
    def _entry(name: str, a: "np.ndarray[Any, Any]") -> Entry:
        if a.dtype.kind == "f" or str(a.dtype) == "bfloat16":
            return Entry(name, a.shape)
        if a.dtype not in _SIDE:
            raise HookeError(f"x[{name!r}] is of type {a.dtype}, which cannot "
                             "be exchanged")
        return Entry(name, a.shape, _SIDE[a.dtype], _c.HK_STATE_COPY)

    def _view(self, e: Entry, offset: int, count: int
              ) -> "np.ndarray[Any, Any]":
        if e.dtype == _c.HK_F32:
            return self.values[offset:offset + count].reshape(e.shape)
        kind = np.dtype(NUMPY_TYPES[e.dtype])
        flat: np.ndarray[Any, Any] = self.side[
            offset:offset + count * kind.itemsize].view(kind)
        return flat.reshape(e.shape)

    def gather(self, arrays: "Mapping[str, np.ndarray[Any, Any]]") -> None:
        if arrays.keys() != self._shapes.keys():
            raise HookeError(
                "x has other names than at join; the names that differ are "
                + ", ".join(sorted(arrays.keys() ^ self._shapes.keys())))
        for name, a in arrays.items():
            if (a.shape, a.dtype) != self._shapes[name]:
                raise HookeError(f"x[{name!r}] was {self._shapes[name]} at "
                                 f"join, but is now {(a.shape, a.dtype)}")
        for name, a in arrays.items():
            self._views[name][...] = a

    def views(self) -> "dict[str, np.ndarray[Any, Any]]":
        """The vector's own memory, by name."""
        return self._views

    def scatter(self, arrays: "Mapping[str, np.ndarray[Any, Any]]") -> None:
        for name, a in arrays.items():
            a[...] = self._views[name]


def _check_arrays(arrays: Mapping[str, Any]) -> None:
    for name, a in arrays.items():
        if not isinstance(a, np.ndarray) or not a.flags.writeable:
            raise HookeError(f"x[{name!r}] is {type(a).__name__}; it has to "
                             "be a writable NumPy array")


class ArrayWorker(Worker):
    """A worker over NumPy arrays: call ``step(x)`` after every step, or
    ``exchange(x, steps)`` at any time. x: the arrays that were given to
    ``join``, or others of the same shapes; exchanges change them in place."""

    def __init__(self, x: Arrays, options: Options, verbose: bool) -> None:
        self._flat: Optional[Flat] = None
        if isinstance(x, Mapping):
            _check_arrays(x)
            self._flat = Flat(x)
            self._flat.gather(x)
            made = Exchange(self._flat.layout, options,
                            self._flat.values.ctypes.data,
                            self._flat.side.ctypes.data)
            self._flat.scatter(x)
        else:
            a = float_buffer(x)
            self._count = a.size
            made = Exchange(Layout([Entry("x", (a.size,))]), options,
                            a.ctypes.data)
        self._begin(made, verbose)

    def _begin(self, made: Exchange, verbose: bool) -> None:
        super().__init__(made, verbose)

    def step(self, x: Arrays) -> bool:
        """Counts one step on x, and exchanges at the end of a period. Returns
        True after an exchange."""
        self._exchange.check_open()
        self._since += 1
        if self._since < self.period:
            return False
        self.exchange(x, 0)
        return True

    def exchange(self, x: Arrays, steps: int = 1) -> None:
        """Exchanges now. steps: number of steps since the last call, without
        those that ``step`` has counted."""
        made = steps + self._since
        if self._flat is not None:
            if not isinstance(x, Mapping):
                raise HookeError("this worker joined with a dict of arrays; "
                                 "x has to be such a dict")
            _check_arrays(x)
            self._flat.gather(x)
        else:
            a = float_buffer(x)
            if a.size != self._count:
                raise HookeError(f"x has {a.size} values, but had "
                                 f"{self._count} at join")
            self._exchange.address = a.ctypes.data
        self._exchange.call(lambda: self._exchange.exchange(made))
        self._since = 0
        if self._flat is not None:
            self._flat.scatter(x)


def join(x: Arrays, center: Optional[Addresses] = None,
         key: Optional[KeyLike] = None, *, period: Optional[int] = None,
         workers: Optional[int] = None, worker: Optional[int] = None,
         method: Optional[str] = None, moving_rate: Optional[float] = None,
         compression: str = "none", insecure: bool = False,
         wait_seconds: float = 60.0, connect_seconds: float = 60.0,
         verbose: bool = True) -> ArrayWorker:
    """Joins a center with NumPy arrays: x gets the center's values, or the
    center gets those of x if it has none yet.

    x: a writable, contiguous float32 buffer, or a dict of named arrays (floats
    are exchanged as float32, integers copied). The other options are those of
    ``hooke.torch.join``.
    """
    options = Options(center=center, key=key, period=period, workers=workers,
                      worker=worker, method=method, moving_rate=moving_rate,
                      compression=compression, insecure=insecure,
                      wait_seconds=wait_seconds,
                      connect_seconds=connect_seconds)
    return ArrayWorker(x, options, verbose)
