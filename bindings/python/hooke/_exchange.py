"""A worker's handle: a layout, a connection and the exchanges over it.

Adapters (NumPy, JAX, PyTorch) bring the values: one array of ``layout.n``
floats, and a side block for values that are not floats. They count the steps;
every call here that exchanges does it now.
"""
from __future__ import annotations

import atexit
import ctypes
import logging
import os
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional, Sequence

import numpy as np

from . import _c
from ._errors import HookeError, check, in_python
from ._library import library
from ._options import COMPRESSION, Options, connect_options, method_id
from ._thread import Call, CallThread

log = logging.getLogger("hooke")

STATS_SECONDS = 0.5  # nobody waits longer for an exchange under way to be counted
LEAVE_SECONDS = 5.0  # nobody waits longer for a center that is away
NUMPY_TYPES: dict[int, Any] = {
    _c.HK_F32: np.float32, _c.HK_F64: np.float64, _c.HK_I32: np.int32,
    _c.HK_I64: np.int64, _c.HK_U8: np.uint8, _c.HK_BOOL: np.bool_,
}


class Entry(NamedTuple):
    """One named tensor of a model."""

    name: str
    shape: tuple[int, ...]
    dtype: int = _c.HK_F32
    kind: int = _c.HK_TRAINABLE


class Place(NamedTuple):
    """Where an entry lies: floats of the vector, or bytes of the side block."""

    entry: Entry
    offset: int
    size: int  # elements


def shape_of(dims: Sequence[int]) -> _c.hk_shape:
    """The C shape; what has more dimensions than it holds becomes a row."""
    dims = tuple(dims)
    if len(dims) > _c.HK_MAX_RANK:
        dims = (int(np.prod(dims, dtype=np.int64)),)
    out = _c.hk_shape(rank=len(dims))
    for i, d in enumerate(dims):
        out.dim[i] = d
    return out


class Layout:
    """The table of contents of the flat vector."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        lib = library()
        items = (_c.hk_layout_item * len(entries))()
        for item, e in zip(items, entries):
            item.name = e.name.encode()
            item.shape = shape_of(e.shape)
            item.dtype = e.dtype
            item.kind = e.kind
        self.handle = ctypes.c_void_p()
        check(lib.hk_layout_create(items, len(entries),
                                   ctypes.byref(self.handle)))
        self._free = weakref.finalize(self, lib.hk_layout_release, self.handle)
        info = _c.hk_layout_info()
        check(lib.hk_layout_get_info(self.handle, ctypes.byref(info)))
        self.n = int(info.n)
        self.n_train = int(info.n_train)
        self.side_bytes = int(info.side_bytes)
        self.places = [self._place(e) for e in entries]

    def _place(self, entry: Entry) -> Place:
        found = library().hk_layout_find(self.handle, entry.name.encode())
        return Place(entry, int(found.contents.offset),
                     int(found.contents.count))


@dataclass(frozen=True)
class Stats:
    """What a worker knows of its exchanges."""

    worker: int
    incarnation: int
    method: str
    period: int
    moving_rate: float
    local_step: int
    global_step: int
    exchanges: int
    dropped: int
    staleness: float
    staleness_mean: float
    staleness_max: float
    distance: float
    exchange_seconds: float
    exposed_seconds: float
    bytes_in: int
    bytes_out: int
    reconnects: int
    missed: int
    away_seconds: float
    reachable: bool
    finished: bool


_living: "weakref.WeakSet[Exchange]" = weakref.WeakSet()
_abandoned: list[object] = []  # a call that does not come back may still write


@atexit.register
def _leave_all() -> None:
    for worker in list(_living):
        if worker.is_mine():
            worker.leave()


def _log_line(_user: Any, level: int, text: bytes) -> None:
    log.log(level, "%s", in_python(text.decode(errors="replace")))


_LOG_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int,
                             ctypes.c_char_p)
_log_callback = _LOG_TYPE(_log_line)


class Context:
    """Receives the library's log and passes it to ``logging``."""

    def __init__(self) -> None:
        lib = library()
        o = _c.hk_context_options()
        lib.hk_context_options_init(ctypes.byref(o), ctypes.sizeof(o))
        o.log = ctypes.cast(_log_callback, ctypes.c_void_p)
        o.log_level = max(log.getEffectiveLevel(), _c.HK_LOG_DEBUG)
        o.threads = 1
        self.handle = ctypes.c_void_p()
        check(lib.hk_context_create(ctypes.byref(o), ctypes.byref(self.handle)))

    def stop(self) -> None:
        """Ends waits that look at it; from any thread."""
        library().hk_request_stop(self.handle, 1)

    def close(self) -> None:
        library().hk_context_destroy(self.handle)
        self.handle = ctypes.c_void_p()


class Exchange:
    """A worker that has joined a center."""

    def __init__(self, layout: Layout, options: Options, address: int,
                 side: int = 0) -> None:
        """address: of layout.n floats, side: of layout.side_bytes bytes; both
        outlive the worker, and become the center's values."""
        self._pid = os.getpid()
        self._thread = CallThread("hooke-exchange")
        self.layout = layout
        self.options = options
        self.address = address
        self.exposed = 0.0
        self._closed = False
        self._ending = threading.Lock()
        self._center = ctypes.c_void_p()
        self._elastic = ctypes.c_void_p()
        self._counted: Optional[Stats] = None  # with the last exchange
        self._context = Context()
        try:
            self.call(lambda: self._open(side))
        except BaseException:
            self._context.stop()
            self.leave()
            raise
        self.exposed = 0.0  # waiting for exchanges, not for the center to come
        _living.add(self)

    # ---- opening

    def _open(self, side: int) -> None:
        lib, o = library(), self.options
        co, keep = connect_options(o.addresses, o.key, insecure=o.insecure,
                                   seconds=o.connect_seconds)
        co.context = self._context.handle
        co.compression = COMPRESSION[o.compression]
        co.lost_ms = int(o.lost_seconds * 1000)
        if o.name is not None:
            co.name = o.name.encode()
        check(lib.hk_center_connect(ctypes.byref(co), self.layout.handle,
                                    ctypes.byref(self._center)))
        del keep
        info = self._center_info()
        self.method_id = int(info.method)
        self.method: str = lib.hk_method_name(self.method_id).decode()
        self.period = o.period or int(lib.hk_method_period(self.method_id))
        eo = self._elastic_options(side)
        check(lib.hk_elastic_create(ctypes.byref(eo), None, self._center,
                                    ctypes.byref(self._elastic)))
        task = -1 if o.worker is None else o.worker
        check(lib.hk_elastic_init(self._elastic, self._x(), task))
        got = self._elastic_info()
        self.worker, self.incarnation = int(got.worker), int(got.incarnation)
        rate = ctypes.c_double()
        check(lib.hk_elastic_get(self._elastic, b"moving_rate",
                                 ctypes.byref(rate)))
        self.moving_rate = rate.value
        self._count()

    def _elastic_options(self, side: int) -> _c.hk_elastic_options:
        o = self.options
        eo = _c.hk_elastic_options()
        library().hk_elastic_options_init(ctypes.byref(eo), ctypes.sizeof(eo))
        eo.context = self._context.handle
        eo.name = b"worker"
        eo.preset = _c.HK_PRESET_PAPER
        eo.num_worker = o.workers or 1
        eo.communication_period = 1  # steps are counted by the adapter
        eo.follow_live = 1
        eo.rho = o.rho
        eo.wait_ms = int(o.wait_seconds * 1000)
        eo.telemetry = int(o.telemetry)
        eo.side = side or None
        if o.method is not None:
            eo.method = method_id(o.method)
        if o.moving_rate is not None:
            eo.moving_rate = o.moving_rate
        elif self.method == "elastic":
            eo.moving_rate = self._usual_rate()
        return eo

    def _usual_rate(self) -> float:
        """The moving rate that hk_rates_choose gives for several workers."""
        lib = library()
        ask, rates = _c.hk_rates_ask(), _c.hk_rates()
        lib.hk_rates_ask_init(ctypes.byref(ask), ctypes.sizeof(ask))
        ask.workers = max(self.options.workers or 0, 2)
        ask.params = max(self.layout.n, 1)
        ask.step_gflop = 1.0
        check(lib.hk_rates_choose(ctypes.byref(ask), ctypes.byref(rates)))
        return float(rates.moving_rate)

    # ---- calls

    @property
    def center(self) -> ctypes.c_void_p:
        """The library's handle."""
        return self._center

    def is_mine(self) -> bool:
        return os.getpid() == self._pid

    def check_process(self) -> None:
        if not self.is_mine():
            raise HookeError(
                f"this worker belongs to process {self._pid}, but was used in "
                f"its fork, process {os.getpid()} (a DataLoader's worker?); "
                "only the process that joined can use it", "HK_E_STATE")

    def check_open(self) -> None:
        self.check_process()
        if self._closed:
            raise HookeError("this worker has left its center", "HK_E_STATE")

    def start(self, function: Callable[[], Any]) -> Call:
        """Runs it in the worker's thread."""
        self.check_open()
        return self._thread.start(function)

    def call(self, function: Callable[[], Any]) -> Any:
        """The same, and waits; signals are heard meanwhile."""
        begin = time.monotonic()
        try:
            return self.start(function).result()
        finally:
            self.exposed += time.monotonic() - begin

    def _x(self) -> Any:
        return ctypes.cast(self.address, ctypes.POINTER(ctypes.c_float))

    def _elastic_info(self) -> _c.hk_elastic_info:
        info = _c.hk_elastic_info()
        check(library().hk_elastic_get_info(self._elastic, ctypes.byref(info)))
        return info

    def _center_info(self) -> _c.hk_center_info:
        info = _c.hk_center_info()
        check(library().hk_center_get_info(self._center, ctypes.byref(info)))
        return info

    # ---- exchanges; to be run by start() or call()

    def exchange(self, steps: int) -> None:
        """One exchange of the values in place."""
        lib = library()
        try:
            if steps == 0:
                check(lib.hk_elastic_exchange(self._elastic, self._x()))
            else:
                check(lib.hk_elastic_stepped(self._elastic, self._x(), steps))
        finally:
            self._count()

    def difference(self, steps: int) -> None:
        """One exchange; the values give way to the difference."""
        try:
            check(library().hk_elastic_difference(self._elastic, self._x(),
                                                  steps))
        finally:
            self._count()

    def gradients(self, address: int) -> None:
        """Adds layout.n_train gradients, for methods that send them."""
        view = _c.hk_grad_view(n_dense=self.layout.n_train, scale=1.0)
        view.dense = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
        check(library().hk_elastic_gradients(self._elastic,
                                             ctypes.byref(view)))

    def set(self, name: str, value: float) -> None:
        check(library().hk_elastic_set(self._elastic, name.encode(), value))

    def view(self) -> "np.ndarray[Any, Any]":
        """The center as it was at the last contact; for rho > 0."""
        info = self._elastic_info()
        return np.ctypeslib.as_array(info.view, (self.layout.n,))

    def variables(self) -> "dict[str, np.ndarray[Any, Any]]":
        """What a checkpoint of this worker wants: views of its own memory."""
        lib, handle = library(), ctypes.c_void_p()
        check(lib.hk_name_map_create(ctypes.byref(handle)))
        try:
            check(lib.hk_elastic_variables(self._elastic, handle))
            items = (lib.hk_name_map_item(handle, i).contents
                     for i in range(lib.hk_name_map_count(handle)))
            return {i.name.decode(): array_at(i.data, i.dtype, i.shape)
                    for i in items}
        finally:
            lib.hk_name_map_destroy(handle)

    def finish(self, reason: str) -> None:
        """Ends the run for everybody."""
        check(library().hk_center_finish(self._center, reason.encode(),
                                         int(self.options.wait_seconds * 1000)))

    def stats(self) -> Stats:
        """Now, or, while an exchange takes long and after leaving, as the last
        exchange left them."""
        self.check_process()
        if not self._closed and self._thread.wait(STATS_SECONDS):
            self._thread.start(self._count).result()
        found = self._counted
        if found is None:
            raise HookeError("there are no stats: this worker has not made "
                             "an exchange yet", "HK_E_STATE")
        return found

    def _count(self) -> None:
        if self._elastic:
            self._counted = self._read_stats()

    def _read_stats(self) -> Stats:
        s, link = _c.hk_elastic_stats(), _c.hk_link_info()
        lib = library()
        check(lib.hk_elastic_get_stats(self._elastic, ctypes.byref(s)))
        check(lib.hk_center_get_link_info(self._center, ctypes.byref(link)))
        rate = s.moving_rate if s.exchanges else self.moving_rate
        return Stats(
            worker=self.worker, incarnation=self.incarnation,
            method=self.method, period=self.period, moving_rate=rate,
            local_step=s.local_step, global_step=s.global_step,
            exchanges=s.exchanges, dropped=s.dropped, staleness=s.staleness,
            staleness_mean=s.staleness_mean, staleness_max=s.staleness_max,
            distance=s.distance, exchange_seconds=s.exchange_seconds,
            exposed_seconds=self.exposed, bytes_in=link.bytes_in,
            bytes_out=link.bytes_out, reconnects=link.reconnects,
            missed=link.missed, away_seconds=link.away_seconds,
            reachable=bool(link.reachable), finished=bool(link.finished))

    def finished(self) -> bool:
        """Whether the run has been ended, by what the last contact said."""
        link = _c.hk_link_info()
        check(library().hk_center_get_link_info(self._center,
                                                ctypes.byref(link)))
        return bool(link.finished)

    # ---- leaving

    def has_left(self) -> bool:
        return self._closed

    def leave(self) -> None:
        """Leaves the center; a second time does nothing."""
        self.check_process()
        if self._closed:
            return
        self._closed = True
        _living.discard(self)
        call = self._thread.start(self._close)
        if not call.wait(LEAVE_SECONDS):
            log.warning("worker: the center did not answer within %g s while "
                        "this worker left",
                        LEAVE_SECONDS)
            self._give_up()
            if not call.wait(LEAVE_SECONDS):
                _abandoned.append(self)
        self._thread.stop()

    def _give_up(self) -> None:
        """Ends the waits of the worker's thread: Python must not end while
        it is inside of the library."""
        with self._ending:
            if self._context.handle:
                self._context.stop()
            if self._center:
                library().hk_center_cancel(self._center)

    def _close(self) -> None:
        lib = library()
        if self._elastic:
            self._count()
            info = self._elastic_info()
            if info.worker >= 0 and lib.hk_elastic_leave(self._elastic,
                                                         self._x()) != 0:
                log.warning("worker: error while leaving the center: %s",
                            lib.hk_last_error().decode(errors="replace"))
        with self._ending:
            lib.hk_elastic_destroy(self._elastic)
            lib.hk_center_destroy(self._center)
            self._center = ctypes.c_void_p()
            self._context.close()


def array_at(address: int, dtype: int, shape: _c.hk_shape
             ) -> "np.ndarray[Any, Any]":
    """A NumPy view of the library's memory."""
    dims = tuple(shape.dim[:shape.rank])
    kind = np.dtype(NUMPY_TYPES[dtype])
    count = int(np.prod(dims, dtype=np.int64))
    if count == 0:
        return np.empty(dims, kind)
    raw = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(raw, kind).reshape(dims)
