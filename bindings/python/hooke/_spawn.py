"""Workers on this machine: a center here, processes beside it."""
from __future__ import annotations

import logging
import multiprocessing
import os
import tempfile
import traceback
from multiprocessing.connection import Connection, wait
from typing import Any, Callable, Mapping, Optional

import numpy as np

from ._center import start_center
from ._errors import HookeError

log = logging.getLogger("hooke")


def _run(function: Callable[..., Any], args: tuple[Any, ...], worker: int,
         workers: int, address: str, answer: Connection) -> None:
    """In the process of a worker."""
    os.environ["HOOKE_CENTER"] = address
    os.environ["HOOKE_WORKERS"] = str(workers)
    os.environ["HOOKE_INDEX"] = str(worker)
    os.environ.pop("HOOKE_KEY", None)  # the center is this user's own
    try:
        function(*args)
    except BaseException:
        answer.send(traceback.format_exc())
        raise SystemExit(1) from None
    answer.send(None)


def _failure(worker: int, process: Any, answer: Connection) -> Optional[str]:
    try:
        text = answer.recv() if answer.poll() else None
    except EOFError:
        text = None
    if text is not None:
        return f"worker {worker}:\n{text}"
    if process.exitcode != 0:
        return f"worker {worker} ended with exit code {process.exitcode}"
    return None


def _wait(started: "list[tuple[Any, Connection]]") -> list[str]:
    """Waits for all workers; a failure is logged when it happens."""
    running = {p.sentinel: (i, p, c) for i, (p, c) in enumerate(started)}
    failed = []
    while running:
        for sentinel in wait(list(running)):
            i, p, c = running.pop(sentinel)
            p.join()
            text = _failure(i, p, c)
            if text is not None:
                failed.append(text)
                log.error("%s%s", text, f"\n{len(running)} other workers "
                                        "continue"
                          if running else "")
    return failed


def spawn(function: Callable[..., Any], workers: int, args: tuple[Any, ...] = (),
          *, method: str = "elastic", outer: Optional[Mapping[str, Any]] = None
          ) -> "dict[str, np.ndarray[Any, Any]]":
    """Runs ``function(*args)`` in ``workers`` processes around a center in this
    one, waits for them and returns the center's values.

    In each process ``join`` finds the center without an address. A new
    interpreter has to be able to import the function (put the call below ``if
    __name__ == "__main__":``). A worker that fails is logged at once, and the
    others continue; when they have ended, HookeError is raised with the
    center's values in ``values``.
    """
    if workers < 1:
        raise HookeError(f"workers is {workers}; it has to be at least 1")
    start = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="hooke-") as folder, \
            start_center(f"unix:{folder}/center", method=method,
                         workers=workers, outer=outer) as center:
        started = []
        try:
            for i in range(workers):
                mine, theirs = start.Pipe(duplex=False)
                p = start.Process(target=_run, args=(
                    function, args, i, workers, center.address, theirs),
                    daemon=False)
                p.start()
                theirs.close()
                started.append((p, mine))
            texts = _wait(started)
        except BaseException:  # Ctrl-C: they leave as well
            for p, _ in started:
                p.terminate()
            for p, _ in started:
                p.join(10)
            raise
        if texts:
            error = HookeError(f"{len(texts)} of {workers} workers failed\n"
                               + "\n".join(texts), "HK_E_STATE")
            if center.stats()["initialised"]:
                error.values = center.arrays()
            raise error
        return center.arrays()
