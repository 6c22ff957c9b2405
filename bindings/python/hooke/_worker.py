"""What workers of every framework have in common."""
from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Optional, TypeVar

from ._exchange import Exchange, Stats

Self = TypeVar("Self", bound="Worker")


def _terminated(number: int, _frame: Optional[FrameType]) -> None:
    """SIGTERM as an exception: ``with`` blocks end, workers leave."""
    raise SystemExit(128 + number)


class Worker:
    """A worker that has joined a center. Leaves at the end of its ``with``
    block, with ``leave()``, on Ctrl-C and SIGTERM, and when Python ends.

    Any thread may use it, but only one at a time.
    """

    def __init__(self, exchange: Exchange, verbose: bool) -> None:
        self._exchange = exchange
        self._since = 0  # steps since the last exchange
        self._took_signal = False
        if (threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL):
            signal.signal(signal.SIGTERM, _terminated)
            self._took_signal = True
        if verbose:
            print(self._greeting(), file=sys.stderr)

    def _greeting(self) -> str:
        e = self._exchange
        rate = (f", moving rate {e.moving_rate:.4g}"
                if e.method.startswith("elastic") else "")
        text = (f"hooke: worker {e.worker} at {','.join(e.options.addresses)}: "
                f"method {e.method}, period {e.period}{rate}, "
                f"{sum(p.size for p in e.layout.places)} values")
        if self._took_signal:
            text += "; SIGTERM leaves the center and ends the process"
        return text

    @property
    def id(self) -> int:
        """Index of this worker."""
        return self._exchange.worker

    @property
    def method(self) -> str:
        """The center's method."""
        return self._exchange.method

    @property
    def period(self) -> int:
        """Steps between exchanges."""
        return self._exchange.period

    @property
    def finished(self) -> bool:
        """Whether the run has ended (``finish``, or the center's limits), as
        reported by the last exchange or heartbeat."""
        self._exchange.check_process()
        return self._exchange.finished()

    def stats(self) -> Stats:
        """Counters and measures, also after leaving. An exchange that takes
        longer than half a second is counted when it is over."""
        return self._exchange.stats()

    def finish(self, reason: str = "a worker has ended the run") -> None:
        """Ends the run for all workers."""
        self._exchange.call(lambda: self._exchange.finish(reason))

    def leave(self, last_exchange: bool = False) -> None:
        """Leaves the center; a second call has no effect. last_exchange: first
        exchanges the steps since the last exchange, as at the end of a
        ``with`` block."""
        try:
            if last_exchange and not self._exchange.has_left():
                self._last_exchange()
        finally:
            self._leave()

    def _leave(self) -> None:
        self._exchange.leave()
        if (self._took_signal
                and threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGTERM) is _terminated):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._took_signal = False

    def _last_exchange(self) -> None:
        """Exchanges the steps since the last exchange, if the worker holds
        the values and no round has to be waited for."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: Optional[type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.leave(last_exchange=kind is None)

    def __reduce__(self) -> Any:
        raise TypeError("a worker cannot be pickled or sent to another "
                        "process; call join in each process")
