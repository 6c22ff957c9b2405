#!/usr/bin/env python3
"""Time from starting `hooke train` to its first finished step.

    run_start.py PROGRAM [ROUNDS]

The first plain progress line is written when the first step is done. Prints
one line per case: best and median over the rounds, and the best as a share of
the bound of 150 ms. Writes build/bench/start.json. Ends with 1 when a bound is
missed.
"""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import ratios

BOUND = 0.150
CASES = {
    "1 worker": ["--workers", "1"],
    "4 workers": ["--workers", "4"],
    "convolutions": ["digits-cnn", "--workers", "1"],
}


def first_step(program, words, folder):
    """Seconds from exec to the first line about a step."""
    # Evaluations at the first step are not part of it.
    command = [program, "train", *words, "--steps", "50", "--set",
               "run.eval_steps=0", "--model-dir",
               os.path.join(folder, "model"), "--progress", "plain"]
    start = time.perf_counter()
    with subprocess.Popen(command, stderr=subprocess.PIPE,
                          stdout=subprocess.DEVNULL, text=True) as child:
        for line in child.stderr:
            if "%  step " in line:
                seconds = time.perf_counter() - start
                child.kill()
                return seconds
    raise SystemExit(f"run_start: {' '.join(command)} failed")


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    missed, found = False, []
    for name, words in CASES.items():
        times = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                times.append(first_step(program, words, folder))
        best, median = min(times), statistics.median(times)
        missed |= best > BOUND
        found.append(ratios.lower(name.replace(" ", "_"), best * 1e3, "ms"))
        print(f"start to first step, {name:12}  best {best * 1e3:6.1f} ms  "
              f"median {median * 1e3:6.1f} ms  of the bound "
              f"{best / BOUND:.2f}", flush=True)
    ratios.write(os.path.join(ratios.ROOT, "build", "bench", "start.json"),
                 "start", found, None)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
