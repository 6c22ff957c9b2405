"""Ranges of data that a center leases to a worker."""
from __future__ import annotations

import ctypes
from typing import NamedTuple

from . import _c
from ._errors import HookeError, check
from ._exchange import Exchange
from ._library import library
from ._thread import Call


class Range(NamedTuple):
    """Positions [begin, end) of an epoch's order; the first ``used`` of them
    were used before."""

    id: int
    epoch: int
    begin: int
    end: int
    used: int


class Ranges:
    """One set of data as a center divides it. Who takes a range says what it
    used of it: with the next exchange, or by giving it back."""

    def __init__(self, exchange: Exchange, name: str, units: int, seed: int
                 ) -> None:
        self._exchange = exchange
        self._text = name.encode()
        self._set = 0
        self._what = _c.hk_lent_set(
            name=self._text, fingerprint=units, seed=seed & (2**64 - 1),
            units=units, epochs=-1, workers=exchange.options.workers or 0)
        self.seed = seed
        exchange.call(self._declare)

    def _wait_ms(self) -> int:
        return int(self._exchange.options.wait_seconds * 1000)

    def _declare(self) -> None:
        number, seed = ctypes.c_uint32(), ctypes.c_uint64()
        e = self._exchange
        check(library().hk_center_declare_set(
            e.center, e.worker, ctypes.byref(self._what), self._wait_ms(),
            ctypes.byref(number), ctypes.byref(seed)))
        self._set, self.seed = number.value, seed.value

    def _take(self) -> Range:
        r, e = _c.hk_range(), self._exchange
        status = library().hk_center_take_range(
            e.center, e.worker, self._set, self._wait_ms(), ctypes.byref(r))
        if status == _c.HK_E_NOT_FOUND:  # a center that has started anew
            self._declare()
            status = library().hk_center_take_range(
                e.center, e.worker, self._set, self._wait_ms(),
                ctypes.byref(r))
        check(status)
        return Range(r.id, r.epoch, r.begin, r.end, r.used)

    def take(self) -> Call:
        """The next range, when it is there."""
        return self._exchange.start(self._take)

    def use(self, number: int) -> None:
        """The whole of it was used; counts with the next exchange."""
        e = self._exchange
        e.start(lambda: check(library().hk_center_use_range(
            e.center, e.worker, number)))

    def give_back(self, number: int, used: int) -> None:
        """So many were used, and exchanged; the others are for somebody else."""
        _give_back(self._exchange, number, used)


def give_back_all(exchange: Exchange) -> None:
    """Every range that the worker still holds, of all sets: what was used
    counts, the rest is for others."""
    _give_back(exchange, 0, 0)


def _give_back(e: Exchange, number: int, used: int) -> None:
    wait_ms = int(e.options.wait_seconds * 1000)
    try:
        e.call(lambda: check(library().hk_center_return_range(
            e.center, e.worker, number, used, wait_ms)))
    except HookeError as error:
        if error.status not in ("HK_E_TIMEOUT", "HK_E_UNAVAILABLE"):
            raise
