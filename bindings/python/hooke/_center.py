"""A center in this process."""
from __future__ import annotations

import ctypes
import os
from types import TracebackType
from typing import Any, Mapping, Optional, Union

import numpy as np

from . import _c
from ._errors import HookeError, check
from ._exchange import Context
from ._library import library
from ._observe import center_arrays
from ._options import KeyLike, load_key, method_id
from ._thread import CallThread

# Names of optimizers as PyTorch's users know them.
OUTER = {
    "sgd": _c.HK_OPT_GRADIENT_DESCENT,
    "momentum": _c.HK_OPT_MOMENTUM,
    "adagrad": _c.HK_OPT_ADAGRAD,
    "adam": _c.HK_OPT_ADAM,
    "adamw": _c.HK_OPT_ADAMW,
    "rmsprop": _c.HK_OPT_RMSPROP,
    "lion": _c.HK_OPT_LION,
}
_OUTER_FIELDS = ("learning_rate", "momentum", "beta1", "beta2", "epsilon",
                 "weight_decay")


def _outer_options(outer: Mapping[str, Any]) -> _c.hk_optimizer_options:
    given = dict(outer)
    kind = given.pop("type", "momentum")
    if kind not in OUTER:
        raise HookeError(f"outer: unknown type {kind!r}; it has to be one of "
                         + ", ".join(OUTER))
    o = _c.hk_optimizer_options()
    library().hk_optimizer_options_init(ctypes.byref(o), ctypes.sizeof(o),
                                        OUTER[kind])
    o.threads = 1
    o.use_nesterov = int(bool(given.pop("nesterov", False)))
    for name, value in given.items():
        if name not in _OUTER_FIELDS:
            raise HookeError(f"outer: unknown option {name!r}; it has to be "
                             "one of type, nesterov, "
                             + ", ".join(_OUTER_FIELDS))
        setattr(o, name, float(value))
    return o


class Center:
    """A center that runs in this process until ``stop``. Its workers may be in
    this process, on this machine or elsewhere."""

    def __init__(self, address: str, *, method: str, key: Optional[KeyLike],
                 path: Optional[Union[str, "os.PathLike[str]"]],
                 durability: Optional[str], workers: int,
                 outer: Optional[Mapping[str, Any]], quorum: int,
                 staleness: int, insecure: bool, lease_seconds: float) -> None:
        lib = library()
        self._pid = os.getpid()
        self._key, self._insecure = key, insecure
        self._server = ctypes.c_void_p()
        co = _c.hk_center_options()
        lib.hk_center_options_init(ctypes.byref(co), ctypes.sizeof(co))
        co.method = method_id(method)
        co.workers, co.quorum, co.staleness = workers, quorum, staleness
        if outer is None and method in ("agn", "drop_stale"):
            raise HookeError(f"method {method} needs an outer optimizer, such "
                             "as outer={'type': 'adam', "
                             "'learning_rate': 0.001}")
        outside = _outer_options(outer) if outer is not None else None
        if outside is not None:
            co.outer = ctypes.pointer(outside)
        so = _c.hk_center_server_options()
        lib.hk_center_server_options_init(ctypes.byref(so), ctypes.sizeof(so))
        self._context = Context()
        so.context = self._context.handle
        texts = (ctypes.c_char_p * 1)(address.encode())
        so.addresses, so.n_addresses = texts, 1
        so.center = ctypes.pointer(co)
        so.insecure = int(insecure)
        so.lease_ms = int(lease_seconds * 1000)
        secret = load_key(key)
        if secret is not None:
            so.key = ctypes.pointer(secret)
        if path is not None:
            so.path = os.fsencode(path)
        if durability is not None:
            so.durability = durability.encode()
        try:
            check(lib.hk_center_server_start(ctypes.byref(so),
                                             ctypes.byref(self._server)))
        except BaseException:
            self._context.close()
            raise
        self.address: str = lib.hk_center_server_address(self._server,
                                                         0).decode()

    def _info(self) -> _c.hk_server_info:
        if not self._server or os.getpid() != self._pid:
            raise HookeError("this center was stopped, or belongs to another "
                             "process", "HK_E_STATE")
        info = _c.hk_server_info()
        check(library().hk_center_server_get_info(self._server,
                                                  ctypes.byref(info)))
        return info

    def stats(self) -> dict[str, Any]:
        """Counters: exchanges, global_step, live workers, bytes..."""
        info = self._info()
        c = info.center
        return {"exchanges": c.exchanges, "version": c.version,
                "global_step": c.global_step, "live": c.live,
                "initialised": bool(c.initialised),
                "bytes_in": info.bytes_in, "bytes_out": info.bytes_out,
                "repeated": info.repeated, "refused": sum(info.refused),
                "finished": bool(info.finished)}

    def arrays(self) -> "dict[str, np.ndarray[Any, Any]]":
        """The values by plain names."""
        self._info()
        return center_arrays(self.address, self._key, insecure=self._insecure)

    def wait(self, seconds: Optional[float] = None) -> bool:
        """Waits until the run has ended and every worker has left; returns
        False after ``seconds``."""
        self._info()
        done = ctypes.c_int()
        ms = -1 if seconds is None else int(seconds * 1000)
        thread = CallThread("hooke-center")
        call = thread.start(lambda: check(library().hk_center_server_wait(
            self._server, ms, ctypes.byref(done))))
        try:
            call.result()
        except KeyboardInterrupt:
            self._context.stop()
            call.wait()
            raise
        finally:
            thread.stop()
        return bool(done.value)

    def stop(self) -> None:
        """Closes every connection and the center file."""
        if self._server and os.getpid() == self._pid:
            library().hk_center_server_stop(self._server)
            self._server = ctypes.c_void_p()
            self._context.close()

    def __enter__(self) -> "Center":
        return self

    def __exit__(self, kind: Optional[type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.stop()


def start_center(address: str = "127.0.0.1:0", *, method: str = "elastic",
                 key: Optional[KeyLike] = None,
                 path: Optional[Union[str, "os.PathLike[str]"]] = None,
                 durability: Optional[str] = None, workers: int = 0,
                 outer: Optional[Mapping[str, Any]] = None, quorum: int = 0,
                 staleness: int = 0, insecure: bool = False,
                 lease_seconds: float = 15.0) -> Center:
    """Starts a center in this process.

    address     address to listen at: ``"host:port"`` (port 0 selects a free
                port), ``"unix:/path"``, ``"shm:/path"``
    method      how workers and center exchange; see docs/elastic.md
    key         file of the cluster key (``hooke keygen``); needed for other
                hosts unless insecure
    path        center file, which keeps the values when this process ends
    durability  ``"process"``, ``"snapshot:SECONDS"`` or ``"always"``
    workers     number of expected workers; some methods divide by it
    outer       outer optimizer of methods such as diloco: ``{"type":
                "momentum", "learning_rate": 0.7, "momentum": 0.9,
                "nesterov": True}``
    quorum      methods with rounds: number of contributions that close a
                round at the deadline
    staleness   ``drop_stale``: oldest accepted gradient, in changes of the
                center
    insecure    allows other hosts without a key
    lease_seconds  membership timeout: a worker without a sign of life for
                longer is removed
    """
    return Center(address, method=method, key=key, path=path,
                  durability=durability, workers=workers, outer=outer,
                  quorum=quorum, staleness=staleness, insecure=insecure,
                  lease_seconds=lease_seconds)
