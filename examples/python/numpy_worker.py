"""A training loop of one's own over a NumPy array, two workers of it.

  numpy_worker.py                     here
  numpy_worker.py HOST:2222 [KEY]     one worker of a cluster
"""
import sys

import numpy as np

import hooke

N = 16
TRUTH = np.arange(N, dtype=np.float32) % 5


def train(center=None, key=None):
    x = np.zeros(N, np.float32)
    with hooke.join(x, center, key, period=10) as w:  # x is the center's now
        g = np.random.default_rng(w.id)
        for _ in range(2000):
            a = g.uniform(-1, 1, N).astype(np.float32)
            x -= 0.05 * (a @ (x - TRUTH)) * a
            w.step(x)
        print(f"worker {w.id}: off by {np.abs(x - TRUTH).max():.4f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(*sys.argv[1:])
    else:
        center = hooke.spawn(train, workers=2)["x"]
        print(f"the center: off by {np.abs(center - TRUTH).max():.4f}")
