"""Functions that a new interpreter can import."""
import os
import signal
import time

import numpy as np

import hooke


def count(n):
    x = np.zeros(4, np.float32)
    with hooke.join(x, verbose=False) as w:
        assert os.environ["HOOKE_WORKERS"] == "3"
        for _ in range(n):
            x += w.id + 1
            w.exchange(x)


def fail():
    if os.environ["HOOKE_INDEX"] == "1":
        raise ValueError("cannot go on")
    count_alone()


def fail_early(folder):
    """Worker 1 fails at once, worker 0 ends when the test has read of it."""
    if os.environ["HOOKE_INDEX"] == "1":
        raise ValueError("cannot go on")
    x = np.full(4, 3, np.float32)
    with hooke.join(x, verbose=False) as w:
        w.exchange(x)
        limit = time.monotonic() + 60
        while not os.path.exists(os.path.join(folder, "heard")):
            assert time.monotonic() < limit
            time.sleep(0.02)


def count_alone():
    x = np.zeros(4, np.float32)
    with hooke.join(x, verbose=False) as w:
        w.exchange(x)


def die():
    os.kill(os.getpid(), signal.SIGKILL)
