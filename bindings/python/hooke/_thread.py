"""A thread that makes a worker's calls, one after the other.

Calls that may wait run here, for two reasons: training goes on beside them, and
a main thread that waits for the answer still hears signals (Python runs their
handlers between its own instructions, never inside of a C call).
"""
from __future__ import annotations

import queue
import threading
from typing import Any, Callable, Optional


class Call:
    """One call under way."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._done = threading.Event()
        self._value: Any = None
        self._error: Optional[BaseException] = None

    def run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:  # handed to whoever asks
            self._error = error
        self._done.set()

    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, seconds: Optional[float] = None) -> bool:
        return self._done.wait(seconds)

    def result(self) -> Any:
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value


class CallThread:
    """Starts with its first call; stop() ends it after the last one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Optional[Call]] = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._last: Optional[Call] = None

    def start(self, function: Callable[[], Any]) -> Call:
        if self._thread is None:
            # A daemon: a center that is away must not keep a process alive.
            self._thread = threading.Thread(target=self._main, name=self._name,
                                            daemon=True)
            self._thread.start()
        call = self._last = Call(function)
        self._calls.put(call)
        return call

    def wait(self, seconds: float) -> bool:
        """Waits for the calls under way; whether they have ended."""
        return self._last is None or self._last.wait(seconds)

    def stop(self) -> None:
        if self._thread is not None:
            self._calls.put(None)
            self._thread = None

    def _main(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            call.run()
