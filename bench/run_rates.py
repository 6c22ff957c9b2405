#!/usr/bin/env python3
"""Examples to a score over a grid of rates, for the rule of rates.c.

    run_rates.py [--data DIR] [--problems mnist,digits] [--workers 2,4,8,16]
                 [--grid full|rate|auto] [--seeds 3] [--jobs CORES] [--limit SECONDS]
                 [--target SCORE] [--hooke PROGRAM] [--out FILE] [--table]

A point is `hooke train` with a period, a moving rate and a factor of the
experiment's learning rate, in round-robin order on one core: the result does
not depend on the machine, only the time does. `rate` varies the factor alone,
with every seed, `auto` runs the rule alone; of the full grid every point runs with the first seed, the best
three and `rates: auto` with the others. Appends a line of JSON per run to FILE (build/bench/rates.jsonl); --table
prints, for each problem and number of workers, medians of what is there, and
how far the rule is from the best point.
"""

import argparse
import json
import os
import queue
import statistics
import sys
import threading
import time

from problems import PROBLEMS, ROOT, reached

AUTO = "auto"
SCALES = (1, 1.5, 2, 3, 4, 6)
BEST = 3  # points that run with every seed


def points(grid, workers):
    """(period, moving rate, factor)."""
    if grid == "auto":
        return []
    if workers == 1:
        return [(2, 0.5, s) for s in (1, 2)]
    found = [(2, 0.5, s) for s in SCALES if workers <= 4 or s > 1]
    if grid == "full":
        found += [(2, 0.25, s) for s in (1, 2, 4)]
        found += [(2, 0.8, s) for s in (2, 4)]
        found += [(10, 0.5, s) for s in (1, 2, 4)]
    return found


def sets(problem, point):
    words = {"elastic.order": "round_robin"}
    if point == AUTO:
        return {**words, "elastic.rates": "auto"}
    period, moving, scale = point
    return {**words, "elastic.rates": "given",
            "elastic.communication_period": period,
            "elastic.moving_rate": moving,
            "optimizer.learning_rate": PROBLEMS[problem].rate * scale}


def key(point):
    return point if point == AUTO else tuple(point)


def cost(line):
    found = reached(line, "examples")
    return float("inf") if found is None else found


class Runs:
    """Runs points on cores of their own and keeps what they found."""

    def __init__(self, o):
        self.o, self.lock = o, threading.Lock()
        self.lines = []
        self.end = time.monotonic() + o.limit
        if os.path.exists(o.out):
            with open(o.out, encoding="utf-8") as f:
                self.lines = [json.loads(x) for x in f]

    def have(self, job):
        return any((x["problem"], x["workers"], key(x["point"]), x["seed"])
                   == job for x in self.lines)

    def one(self, job, core):
        problem, workers, point, seed = job
        line = PROBLEMS[problem].train(
            self.o.hooke, self.o.data, workers, seed, sets(problem, point),
            core=core, target=self.o.target, limit=max(1, self.end - time.monotonic()))
        line.update(problem=problem, point=point)
        with self.lock:
            if time.monotonic() >= self.end:
                return  # broken off: says nothing
            self.lines.append(line)
            with open(self.o.out, "a", encoding="utf-8") as f:
                f.write(json.dumps(line) + "\n")
        print(*job, cost(line), line.get("error", ""), flush=True)

    def all(self, jobs):
        left = queue.SimpleQueue()
        for job in jobs:
            if not self.have(job):
                left.put(job)

        def work(core):
            while time.monotonic() < self.end:
                try:
                    self.one(left.get_nowait(), core)
                except queue.Empty:
                    return
        cores = sorted(os.sched_getaffinity(0))[:self.o.jobs]
        team = [threading.Thread(target=work, args=(c,)) for c in cores]
        for t in team:
            t.start()
        for t in team:
            t.join()

    def medians(self, problem, workers):
        """[(median examples, seeds, point)], best first."""
        groups = {}
        for x in self.lines:
            if x["problem"] == problem and x["workers"] == workers:
                groups.setdefault(key(x["point"]), []).append(cost(x))
        return sorted(((statistics.median_low(v), len(v), k)
                       for k, v in groups.items()), key=str_last)


def str_last(row):
    return row[0], -row[1], str(row[2])


def measure(o, runs):
    cases = [(q, p) for q in o.problems for p in o.workers]
    first = 1 if o.grid == "full" else o.seeds
    runs.all([(q, p, x, s) for q, p in cases for s in range(1, first + 1)
              for x in [AUTO] + points(o.grid, p)])
    more = []
    for q, p in cases:
        best = [r[2] for r in runs.medians(q, p) if r[2] != AUTO][:BEST]
        more += [(q, p, x, s) for x in [AUTO] + best
                 for s in range(2, o.seeds + 1)]
    runs.all(more)


def show(o, runs):
    """One line for each case; the distance of the rule from the best."""
    print("%-12s %3s %22s %10s %10s %6s" % ("problem", "p", "best point",
                                            "examples", "rule", "ratio"))
    for q in o.problems:
        for p in o.workers:
            rows = runs.medians(q, p)
            rule = next((r for r in rows if r[2] == AUTO), None)
            full = [r for r in rows if r[2] != AUTO and
                    r[1] >= min(o.seeds, rule[1] if rule else 1)]
            if rule is None or not full:
                continue
            best = full[0]
            print("%-12s %3d %22s %9.0fk %9.0fk %6.2f" %
                  (q, p, best[2], best[0] / 1e3, rule[0] / 1e3,
                   rule[0] / best[0]))


def numbers(text):
    return [int(x) for x in text.split(",") if x]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", default=os.path.join(ROOT, "..", "shared", "data"))
    p.add_argument("--problems", type=lambda t: t.split(","),
                   default=["mnist", "fashion-mlp", "digits", "adult",
                            "mnist-cnn"])
    p.add_argument("--workers", type=numbers, default=[1, 2, 4, 8, 16])
    p.add_argument("--grid", choices=("full", "rate", "auto"), default="full")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--limit", type=float, default=1e9)
    p.add_argument("--target", type=float)
    p.add_argument("--hooke", default=os.path.join(ROOT, "build", "release",
                                                   "hooke"))
    p.add_argument("--out", default=os.path.join(ROOT, "build", "bench",
                                                 "rates.jsonl"))
    p.add_argument("--table", action="store_true")
    o = p.parse_args()
    os.makedirs(os.path.dirname(os.path.abspath(o.out)), exist_ok=True)
    runs = Runs(o)
    if not o.table:
        measure(o, runs)
    show(o, runs)


if __name__ == "__main__":
    sys.exit(main())
