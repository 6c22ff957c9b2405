#!/usr/bin/env python3
"""Examples to a test accuracy over a grid of rates, for the rule of rates.c.

    run_rates.py --data DIR [--problem mnist] [--workers 4,8] [--periods 2,4,10]
                 [--moving 0.1,0.3,0.5] [--scales 1,2,4] [--seeds 2]
                 [--limit SECONDS] [--hooke PROGRAM] [--out FILE]

Every point is `hooke train` with that period, moving rate and factor of the
experiment's learning rate, in round-robin order: the result does not depend on
the machine, only the time does. Appends a line of JSON per run to FILE
(build/bench/rates.jsonl) and prints, for every number of workers, the best
points and what `rates: auto` reaches beside them.
"""

import argparse
import itertools
import json
import os
import statistics
import sys

import run_accuracy

RATES = {"mnist": 0.05, "mnist-cnn": 0.001, "fashion": 0.001}


def examples(line):
    found = [line[k]["examples"] for k in ("raw", "ema")
             if "examples" in line.get(k, {})]
    return min(found) if found else float("inf")


def sets(**values):
    return [w for k, v in values.items()
            for w in ("--set", "%s=%s" % (k.replace("__", "."), v))]


def points(o):
    """(period, moving rate, factor); None: the rule."""
    yield None
    yield from itertools.product(o.periods, o.moving, o.scales)


def measure(o, workers, point, seed):
    words = sets(elastic__order="round_robin")
    if point is not None:
        period, moving, scale = point
        words += sets(elastic__rates="given",
                      elastic__communication_period=period,
                      elastic__moving_rate=moving,
                      optimizer__learning_rate=RATES[o.problem] * scale)
    line = run_accuracy.run_hooke(o, o.problem, workers, seed, words)
    if line is not None:
        line["point"] = point
    return line


def table(lines, workers):
    groups = {}
    for line in lines:
        if line["workers"] == workers:
            point = line["point"]
            key = tuple(point) if point is not None else "auto"
            groups.setdefault(key, []).append(examples(line))
    ranked = sorted((statistics.median(v), str(k)) for k, v in groups.items())
    for value, key in ranked[:6] + [r for r in ranked[6:] if r[1] == "auto"]:
        print("  p=%-3d %-18s %8.0f thousand examples"
              % (workers, key, value / 1000))


def floats(text):
    return [float(x) for x in text.split(",") if x]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = run_accuracy.ROOT
    p.add_argument("--data", default=os.path.join(root, "..", "shared", "data"))
    p.add_argument("--problem", choices=sorted(RATES), default="mnist")
    p.add_argument("--workers", type=run_accuracy.numbers, default=[4, 8, 16])
    p.add_argument("--periods", type=run_accuracy.numbers, default=[2, 4, 10])
    p.add_argument("--moving", type=floats, default=[0.1, 0.3, 0.5])
    p.add_argument("--scales", type=floats, default=[1, 2, 4])
    p.add_argument("--seeds", type=int, default=1)
    p.add_argument("--limit", type=float, default=30)
    p.add_argument("--hooke", default=os.path.join(root, "build", "release",
                                                   "hooke"))
    p.add_argument("--out", default=os.path.join(root, "build", "bench",
                                                 "rates.jsonl"))
    o = p.parse_args()
    os.makedirs(os.path.dirname(os.path.abspath(o.out)), exist_ok=True)
    for seed, workers, point in itertools.product(
            range(1, o.seeds + 1), o.workers, points(o)):
        line = measure(o, workers, point, seed)
        if line is None:
            continue
        with open(o.out, "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")
        print(workers, point or "auto", examples(line), flush=True)
    with open(o.out, encoding="utf-8") as f:
        lines = [x for x in map(json.loads, f) if x["problem"] == o.problem]
    for workers in o.workers:
        table(lines, workers)


if __name__ == "__main__":
    sys.exit(main())
