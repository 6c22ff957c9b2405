#!/usr/bin/env python3
"""Threads by work: the default number of library threads against others.

    run_threads.py [--bin-dir DIR] [--threads 1,2,4,8,16] [--seconds 200]

Every case runs with each number of threads and with the default (0: as many as
the step is work for), in turns; the median of the rounds counts. The default
may be at most 5 % slower than the best number. Threads that wait spin as in the
program (GOMP_SPINCOUNT); where it is set already, it stays.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time

import ratios

ROOT = ratios.ROOT
CASES = ["mlp64", "lenet64", "resnet20_64", "rec128", "rec512"]
SPINS = "1000"  # as cli/commands/main.c has it
BOUND = 1.05
ROUND_SECONDS = 0.15


class Program:
    """A bench_step for one number of threads, which keeps its last case."""

    def __init__(self, path, env, threads):
        self.threads = threads
        self.child = subprocess.Popen([path], env=env, text=True, bufsize=1,
                                      stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE)

    def step_ms(self, case, iters):
        self.child.stdin.write("%s %d %d\n" % (case, self.threads, iters))
        return float(self.child.stdout.readline())

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def chosen(path, env, case):
    """The threads that the default stands for, and the step's GFLOP."""
    text = subprocess.run([path, "plan", case, "0"], env=env, check=True,
                          capture_output=True, text=True).stdout
    return (int(re.search(r"(\d+) threads?\n", text).group(1)),
            float(re.search(r"([\d.]+) GFLOP", text).group(1)))


def time_case(programs, case, seconds):
    """{threads: median ms of the rounds}, for about so many seconds."""
    iters, out = {}, {p.threads: [] for p in programs}
    end = time.monotonic() + seconds
    for p in programs:
        ms = p.step_ms(case, 3)
        iters[p] = max(2, int(ROUND_SECONDS * 1e3 / max(ms, 1e-3)))
    while time.monotonic() < end or len(out[0]) < 3:
        for p in programs:
            out[p.threads].append(p.step_ms(case, iters[p]))
            time.sleep(0.002)  # its threads go to sleep
        programs.append(programs.pop(0))  # nobody is always behind the same one
    return {n: statistics.median(ms) for n, ms in out.items()}


def options():
    p = argparse.ArgumentParser(description="threads by work")
    p.add_argument("--bin-dir",
                   default=os.path.join(ROOT, "build", "release", "bench"))
    p.add_argument("--cases", default=",".join(CASES))
    p.add_argument("--threads", default="1,2,4,8,16")
    p.add_argument("--seconds", type=float, default=200, help="of all cases")
    p.add_argument("--out", default=os.path.join(ROOT, "build", "bench",
                                                 "threads.json"))
    o = p.parse_args()
    o.cases = o.cases.split(",")
    cores = len(os.sched_getaffinity(0))
    o.threads = [int(t) for t in o.threads.split(",") if int(t) <= cores]
    return o


def report(case, threads, gflop, ms):
    """One line; the case as the file keeps it."""
    best = min((m, n) for n, m in ms.items() if n > 0)
    ratio = ms[0] / best[0]
    cells = "".join("%9.3f" % ms[n] for n in sorted(ms) if n > 0)
    print("%-12s %7.3f %s %9.3f  %2d threads  %.3f of the best (%d)%s" %
          (case, gflop, cells, ms[0], threads, ratio, best[1],
           "" if ratio <= BOUND else "  SLOWER"), flush=True)
    return {"case": case, "gflop": gflop, "ms": ms, "chosen": threads,
            "best": best[1], "ratio": ratio}


def main():
    opt = options()
    path = os.path.join(opt.bin_dir, "bench_step")
    env = dict(os.environ)
    env.setdefault("GOMP_SPINCOUNT", SPINS)
    programs = [Program(path, env, n) for n in opt.threads + [0]]
    print("%-12s %7s %s %9s" % ("ms a step", "GFLOP", "".join(
        "%9d" % n for n in opt.threads), "default"), flush=True)
    found = []
    for case in opt.cases:
        threads, gflop = chosen(path, env, case)
        ms = time_case(programs, case, opt.seconds / len(opt.cases))
        found.append(report(case, threads, gflop, ms))
    for p in programs:
        p.close()
    ratios.write(opt.out, "threads",
                 [ratios.lower("%s/default" % f["case"], f["ratio"],
                               "of the best thread count's time")
                  for f in found], {"cases": found})
    return 1 if any(f["ratio"] > BOUND for f in found) else 0


if __name__ == "__main__":
    sys.exit(main())
