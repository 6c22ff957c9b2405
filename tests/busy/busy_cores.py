#!/usr/bin/env python3
"""busy_cores.py HOOKE: threads that wait leave the core to others.

With two spinning processes on every core, a run with two library threads gets
its fair share as one with a single thread does. Both runs are timed under the
same load, in turns, the best of each: a waiting thread that spins instead of
sleeping uses up the share of the one it waits for, and the run takes ten times
as long.
"""
import json
import os
import subprocess
import sys
import tempfile

ROUNDS, STEPS, BOUND = 3, 200, 2.0
SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def spinners():
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(2 * len(os.sched_getaffinity(0)))]


def seconds(program, threads, folder):
    """Of the steps, without start and evaluation."""
    env = {k: v for k, v in os.environ.items() if k not in SETTINGS}
    with tempfile.TemporaryDirectory(dir=folder) as model_dir:
        done = subprocess.run(
            [program, "train", "digits", "--json", "--quiet", "--model-dir",
             model_dir, "--steps", str(STEPS), "--set",
             f"run.threads={threads}"],
            env=env, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["seconds"]


def main():
    program = os.path.abspath(sys.argv[1])
    load = spinners()
    try:
        with tempfile.TemporaryDirectory() as folder:
            rounds = [[seconds(program, t, folder) for t in (1, 2)]
                      for _ in range(ROUNDS)]
    finally:
        for p in load:
            p.kill()
            p.wait()
    one, two = (min(column) for column in zip(*rounds))
    print(f"{STEPS} steps on busy cores: one thread {one:.2f} s, two "
          f"{two:.2f} s, {two / one:.2f} times as long")
    return 0 if two < BOUND * one else 1


if __name__ == "__main__":
    sys.exit(main())
