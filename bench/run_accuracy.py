#!/usr/bin/env python3
"""Time to a fixed test accuracy: Hooke with its defaults against PyTorch.

    run_accuracy.py --data DIR [--part hooke|torch|ddp|all|table]
                    [--problem mnist] [--workers 1,2,4,8,16] [--threads 1,2,4]
                    [--seeds 3] [--limit SECONDS] [--hooke PROGRAM]
                    [--python PYTHON] [--out FILE]

Every run appends one line of JSON to FILE (build/bench/accuracy.jsonl), so
that parts can be made one after the other; `table` prints medians and ranges
of what is there and writes build/bench/accuracy.json. Hooke runs
`hooke train EXPERIMENT --workers P` as it is shipped, with evaluations beside
training: its clock begins with training and ends when the result is known.
PyTorch's clock is given with scoring inside and outside; the table compares
with the one outside. Either side takes the better of raw (center) and averaged
weights. PYTHON has PyTorch; without it that side is left out.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import events
import ratios

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

# Experiment, target, examples between evaluations.
PROBLEMS = {
    "mnist": ("mnist-mlp", 0.984, 12800),
    "mnist-cnn": ("mnist", 0.99, 12800),
    "fashion": ("fashion-mnist", 0.915, 25600),
}
BATCH = 64


# ---- the two sides ----------------------------------------------------------

def run_hooke(o, problem, workers, seed, more=()):
    experiment, target, every = PROBLEMS[problem]
    folder = tempfile.mkdtemp(prefix="hooke-accuracy-")
    steps = max(1, every // (BATCH * workers))
    command = [o.hooke, "train", experiment, "--data-dir", o.data,
               "--workers", str(workers), "-d", folder,
               "--seconds", str(o.limit), "--set", "run.steps=1000000",
               "--set", "run.eval_steps=%d" % steps,
               "--set", "run.seed=%d" % seed,
               "--set", "run.save_seconds=100000", "-q", "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr[-400:], file=sys.stderr)
        return None
    result = json.loads(done.stdout.strip().splitlines()[-1])
    train = events.scalars(folder)
    evals = events.scalars(os.path.join(folder, "eval"))
    shutil.rmtree(folder)
    began = min(t[0] for t in train)
    line = {"side": "hooke", "problem": problem, "workers": workers,
            "seed": seed, "target": target,
            "steps": result.get("global_step"),
            "rate_examples_s": round(BATCH * result["steps"] /
                                     result["seconds"])
            if "seconds" in result else None}
    for tag, name in (("accuracy", "raw"), ("accuracy/ema", "ema")):
        points = [e for e in evals if e[2] == tag]
        hits = [e for e in points if e[3] >= target]
        line[name] = {"best": round(max((e[3] for e in points), default=0), 4)}
        if hits:
            line[name].update(seconds=round(hits[0][0] - began, 3),
                              examples=hits[0][1] * BATCH)
    return line


def run_torch(o, problem, seed, threads, ranks):
    command = [o.python, os.path.join(HERE, "peer_accuracy.py"), "--data",
               o.data, "--problem", problem, "--threads", str(threads),
               "--target", str(PROBLEMS[problem][1]), "--seed", str(seed),
               "--limit", str(o.limit), "--ranks", str(ranks),
               "--every", str(PROBLEMS[problem][2])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr[-400:], file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


# ---- the table --------------------------------------------------------------

def seconds(line):
    """Of the better of raw and averaged weights; None: not reached."""
    found = [line[k]["seconds"] for k in ("raw", "ema")
             if k in line and "seconds" in line[k]]
    return min(found) if found else None


def name_of(line):
    if line["side"] == "hooke":
        return "hooke p=%d" % line["workers"]
    if line.get("ranks", 1) > 1:
        return "torch ddp %d x %d" % (line["ranks"], line["threads"])
    return "torch %d threads" % line["threads"]


def summary(lines):
    """Name -> (median, least, most, runs, reached) of the seconds."""
    groups = {}
    for line in lines:
        groups.setdefault(name_of(line), []).append(seconds(line))
    found = {}
    for name, values in groups.items():
        reached = sorted(v for v in values if v is not None)
        missed = len(values) - len(reached)
        middle = (reached + [float("inf")] * missed)[len(values) // 2]
        found[name] = (middle, reached[0] if reached else None,
                       reached[-1] if reached else None, len(values),
                       len(reached))
    return found


def table(o, problem):
    if not os.path.exists(o.out):
        sys.exit("%s: nothing was measured yet" % o.out)
    with open(o.out, encoding="utf-8") as f:
        lines = [json.loads(x) for x in f]
    lines = [x for x in lines if x["problem"] == problem]
    found = summary(lines)
    peers = {k: v for k, v in found.items() if k.startswith("torch")}
    best = min(peers.values())[0] if peers else None
    figures = []
    print("%s to %.1f %%: seconds, median (least to most) of runs"
          % (problem, 100 * PROBLEMS[problem][1]))
    for name, (middle, least, most, n, reached) in sorted(found.items()):
        text = "%8.2f (%.2f to %.2f), %d of %d" % (middle, least, most,
                                                   reached, n) \
            if least is not None else "    not reached in %d" % n
        ratio = best / middle if best and middle > 0 else None
        if name.startswith("hooke") and ratio:
            text += "   %.2f x the best torch" % ratio
            figures.append(ratios.higher("%s/%s" % (problem, name), ratio,
                                         "x best torch, time to accuracy"))
        print("  %-20s %s" % (name, text))
    ratios.write(os.path.join(ROOT, "build", "bench", "accuracy.json"),
                 "accuracy", figures, lines)


def numbers(text):
    return [int(x) for x in text.split(",") if x]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", default=os.path.join(ROOT, "..", "shared", "data"))
    p.add_argument("--part", default="all",
                   choices=("hooke", "torch", "ddp", "all", "table"))
    p.add_argument("--problem", choices=sorted(PROBLEMS), default="mnist")
    p.add_argument("--workers", type=numbers, default=[1, 2, 4, 8, 16])
    p.add_argument("--threads", type=numbers, default=[1, 2, 4, 8, 16])
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--limit", type=float, default=30)
    p.add_argument("--hooke", default=os.path.join(ROOT, "build", "release",
                                                   "hooke"))
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--out", default=os.path.join(ROOT, "build", "bench",
                                                 "accuracy.jsonl"))
    o = p.parse_args()
    cores = len(os.sched_getaffinity(0))
    os.makedirs(os.path.dirname(os.path.abspath(o.out)), exist_ok=True)
    for seed in range(1, o.seeds + 1) if o.part != "table" else ():
        jobs = []
        if o.part in ("hooke", "all"):
            jobs += [lambda w=w: run_hooke(o, o.problem, w, seed)
                     for w in o.workers if w <= cores]
        if o.part in ("torch", "all"):
            jobs += [lambda t=t: run_torch(o, o.problem, seed, t, 1)
                     for t in o.threads if t <= cores]
        if o.part in ("ddp", "all"):
            jobs.append(lambda: run_torch(o, o.problem, seed, 1, cores))
        for job in jobs:
            line = job()
            if line is None:
                continue
            print(name_of(line), seconds(line), line, flush=True)
            with open(o.out, "a", encoding="utf-8") as f:
                f.write(json.dumps(line) + "\n")
    table(o, o.problem)


if __name__ == "__main__":
    main()
