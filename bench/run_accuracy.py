#!/usr/bin/env python3
"""Time to a fixed test accuracy: Hooke with its defaults against PyTorch.

    run_accuracy.py [--data DIR] [--part hooke|torch|ddp|all|scoring|table]
                    [--problem mnist] [--workers 1,2,4,8,16] [--threads 1,2,4]
                    [--seeds 3] [--limit SECONDS] [--target SCORE]
                    [--hooke PROGRAM] [--python PYTHON] [--out FILE]

Every run appends one line of JSON to FILE (build/bench/accuracy.jsonl), so
that parts can be made one after the other; `table` prints medians and ranges
of what is there and writes build/bench/accuracy.json. Hooke runs
`hooke train EXPERIMENT --workers P` as it is shipped, with evaluations beside
training: its clock begins with training and ends when the result is known.
PyTorch's clock is given with scoring inside and outside; the table compares
with the one outside. Either side takes the better of raw (center) and averaged
weights. PYTHON has PyTorch; without it that side is left out.

`scoring` compares examples a second with an evaluation every 100 steps and
without, in turns, --seeds times.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import ratios
from problems import HERE, PROBLEMS, ROOT, reached


# ---- the two sides ----------------------------------------------------------

def run_hooke(o, workers, seed):
    p = PROBLEMS[o.problem]
    line = p.train(o.hooke, o.data, workers, seed, limit=o.limit,
                   target=o.target, more={"run.steps": 10 ** 7})
    line.update(side="hooke", problem=o.problem)
    if line["seconds"] > 0:
        line["rate_examples_s"] = round(line["examples"] / line["seconds"])
    return line


def run_torch(o, seed, threads, ranks):
    p = PROBLEMS[o.problem]
    command = [o.python, os.path.join(HERE, "peer_accuracy.py"), "--data",
               o.data, "--problem", o.problem, "--threads", str(threads),
               "--target", str(o.target or p.target), "--seed", str(seed),
               "--limit", str(o.limit), "--ranks", str(ranks),
               "--every", str(p.every)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr[-400:], file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def throughput(o, workers, eval_steps):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [o.hooke, "train", PROBLEMS[o.problem].experiment, "--data-dir",
             o.data, "--workers", str(workers), "-d", folder, "-q", "--json",
             "--seconds", str(o.limit), "--set", "run.steps=10000000",
             "--set", "run.eval_steps=%d" % eval_steps], check=True,
            capture_output=True, text=True)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    return result["examples"] / result["seconds"]


def scoring(o):
    """What evaluations beside training leave of its speed."""
    figures = []
    for workers in o.workers:
        both = [[throughput(o, workers, e) for e in (0, 100)]
                for _ in range(o.seeds)]
        plain, beside = (statistics.median(x) for x in zip(*both))
        print("p=%-3d %9.0f examples a second, %9.0f with scoring: %.3f" %
              (workers, plain, beside, beside / plain), flush=True)
        figures.append(ratios.higher("scoring/p=%d" % workers, beside / plain,
                                     "of the speed without scoring"))
    ratios.write(os.path.join(ROOT, "build", "bench", "scoring.json"),
                 "scoring", figures, {})


# ---- the table --------------------------------------------------------------

def name_of(line):
    if line["side"] == "hooke":
        return "hooke p=%d" % line["workers"]
    if line.get("ranks", 1) > 1:
        return "torch ddp %d x %d" % (line["ranks"], line["threads"])
    return "torch %d threads" % line["threads"]


def middle_of(values):
    """The median, what was not reached counting as the most."""
    return sorted(values, key=lambda v: (v is None, v))[len(values) // 2]


def summary(lines):
    """Name -> median, least and most seconds, examples, runs, reached."""
    groups = {}
    for line in lines:
        groups.setdefault(name_of(line), []).append(line)
    found = {}
    for name, of in groups.items():
        times = [reached(x, "seconds") for x in of]
        good = [t for t in times if t is not None]
        found[name] = {
            "median": middle_of(times), "runs": len(of), "reached": len(good),
            "least": min(good, default=None), "most": max(good, default=None),
            "examples": middle_of([reached(x, "examples") for x in of]),
            "rate": middle_of([x.get("rate_examples_s") for x in of])}
    return found


def show(name, f, best):
    """One line of the table; how much sooner than the best peer."""
    if f["median"] is None:
        print("  %-20s    not reached by %d of %d" %
              (name, f["runs"] - f["reached"], f["runs"]))
        return None
    ratio = best / f["median"] if best and name.startswith("hooke") else None
    print("  %-20s %8.2f (%.2f to %.2f), %d of %d %9d examples %7d / s%s" %
          (name, f["median"], f["least"], f["most"], f["reached"], f["runs"],
           f["examples"], f["rate"] or 0,
           "   %.2f x the best torch" % ratio if ratio else ""))
    return ratio


def table(o, problem):
    if not os.path.exists(o.out):
        sys.exit("%s: nothing was measured yet" % o.out)
    with open(o.out, encoding="utf-8") as f:
        lines = [json.loads(x) for x in f]
    lines = [x for x in lines if x["problem"] == problem]
    found = summary(lines)
    peers = [f["median"] for n, f in found.items()
             if n.startswith("torch") and f["median"] is not None]
    print("%s to %.1f %%: seconds, median (least to most), runs that reached it"
          % (problem, 100 * lines[0]["target"] if lines else 0))
    figures = []
    for name, f in sorted(found.items()):
        ratio = show(name, f, min(peers, default=None))
        if ratio:
            figures.append(ratios.higher("%s/%s" % (problem, name), ratio,
                                         "x best torch, time to accuracy"))
    ratios.write(os.path.join(ROOT, "build", "bench", "accuracy.json"),
                 "accuracy", figures, lines)


def numbers(text):
    return [int(x) for x in text.split(",") if x]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", default=os.path.join(ROOT, "..", "shared", "data"),
                   help="folder that holds the problem's files in a folder of "
                   "its name, such as mnist/train-images-idx3-ubyte.gz "
                   "(default: %(default)s)")
    p.add_argument("--part", default="all",
                   choices=("hooke", "torch", "ddp", "all", "scoring",
                            "table"))
    p.add_argument("--problem", choices=("mnist", "mnist-cnn", "fashion", "cifar"), default="mnist")
    p.add_argument("--workers", type=numbers, default=[1, 2, 4, 8, 16])
    p.add_argument("--threads", type=numbers, default=[1, 2, 4, 8, 16])
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--limit", type=float, default=30)
    p.add_argument("--target", type=float)
    p.add_argument("--hooke", default=os.path.join(ROOT, "build", "release",
                                                   "hooke"))
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--out", default=os.path.join(ROOT, "build", "bench",
                                                 "accuracy.jsonl"))
    o = p.parse_args()
    cores = len(os.sched_getaffinity(0))
    os.makedirs(os.path.dirname(os.path.abspath(o.out)), exist_ok=True)
    if o.part == "scoring":
        return scoring(o)
    for seed in range(1, o.seeds + 1) if o.part != "table" else ():
        jobs = []
        if o.part in ("hooke", "all"):
            jobs += [lambda w=w: run_hooke(o, w, seed)
                     for w in o.workers if w <= cores]
        if o.part in ("torch", "all"):
            jobs += [lambda t=t: run_torch(o, seed, t, 1)
                     for t in o.threads if t <= cores]
        if o.part in ("ddp", "all"):
            jobs.append(lambda: run_torch(o, seed, 1, cores))
        for job in jobs:
            line = job()
            if line is None:
                continue
            if "error" in line:
                sys.exit(line["error"].strip() or "hooke train failed")
            print(name_of(line), reached(line, "seconds"), line, flush=True)
            with open(o.out, "a", encoding="utf-8") as f:
                f.write(json.dumps(line) + "\n")
    table(o, o.problem)


if __name__ == "__main__":
    main()
