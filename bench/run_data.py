"""Runs the data benchmarks: pipelines, files and pictures against their floors.

    run_data.py [--rounds N] [--cases a,b] [--bin-dir DIR] [--data DIR]
                [--peer-python PROGRAM] [--out FILE]

Each program of PROGRAMS that is there runs on its own and prints one JSON
object a case; the two sides of a case take turns inside it. `ratio` is the
median over rounds of floor / ours (for trainer_wait the share of waiting);
MB are of what a case reads or writes. Real files are used where DIR
(default ../shared/data beside the tree) has them, made-up ones elsewhere.
Writes build/bench/data.json and prints a table; `below` marks a ratio that
misses its target. Exits 0 whatever the ratios are. Needs nothing but the
standard library.
"""

import argparse
import json
import os
import subprocess
import sys

import ratios

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

# Program: arguments that name real files, by the paths under the data folder.
PROGRAMS = {
    "bench_data": [("--images", "mnist/train-images-idx3-ubyte.gz"),
                   ("--labels", "mnist/train-labels-idx1-ubyte.gz")],
    "bench_data_files": [("--adult", "adult/adult.data")],
    "bench_data_image": [
        ("--shard", "cifar10-jpeg/cifar10-jpeg-train-00.tar.gz")],
}


def command(path, files, args):
    """The command line, with those real files that are all there."""
    line = [path, "--rounds", str(args.rounds)]
    real = [(flag, os.path.join(args.data, name)) for flag, name in files]
    if all(os.path.exists(name) for _, name in real):
        for flag, name in real:
            line += [flag, name]
    return line


def run(line, wanted):
    """The results of one program, as they come."""
    if wanted:
        lines = [line + ["--case", case] for case in wanted]
    else:
        lines = [line]
    for each in lines:
        child = subprocess.Popen(each, stdout=subprocess.PIPE, text=True)
        for text in child.stdout:
            yield json.loads(text)
        if child.wait() != 0:
            sys.exit("%s: exit code %d" % (" ".join(each), child.returncode))


def lines(args):
    """The command lines of what is there, the peer (tf.data) last."""
    for name, files in PROGRAMS.items():
        path = os.path.join(args.bin_dir, name)
        if os.path.exists(path):
            yield command(path, files, args)
        else:
            print("%s is not built, left out" % name, file=sys.stderr)
    path = os.path.join(args.bin_dir, "bench_data_files")
    if os.path.exists(path):
        yield [args.peer_python, os.path.join(HERE, "peer_data.py"),
               "--bench", path, "--rounds", str(args.rounds)]


def judged(result):
    target = result.get("target") or None
    if target is None:
        result["below"] = False
    elif result.get("at_most"):
        result["below"] = result["ratio"] > target
    else:
        result["below"] = result["ratio"] < target
    return result


def figure(r):
    if r.get("at_most"):  # a share of waiting: of 0.5 % little is left to lose
        return ratios.higher(r["case"], 1 - r["ratio"], "of the time at work")
    return ratios.higher(r["case"], r["ratio"], "x floor")


def show(r):
    target = r.get("target") or None
    sign = "<" if r.get("at_most") else ">="
    print("%-18s %10s %10s %8.3f %8s%s" % (
        r["case"],
        "%.0f" % r["ours_mb_s"] if "ours_mb_s" in r else "-",
        "%.0f" % r["floor_mb_s"] if "floor_mb_s" in r else "-",
        r["ratio"], "%s %.2f" % (sign, target) if target else "-",
        "  below" if r["below"] else ""), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cases", default="")
    parser.add_argument("--bin-dir", default=os.path.join(
        ROOT, "build", "release", "bench"))
    parser.add_argument("--data", default=os.path.join(
        os.path.dirname(ROOT), "shared", "data"))
    venv = os.path.join(ROOT, "build", "python", "interop", "bin", "python")
    parser.add_argument("--peer-python", default=(
        venv if os.path.exists(venv) else sys.executable))
    parser.add_argument("--out", default=os.path.join(
        ROOT, "build", "bench", "data.json"))
    args = parser.parse_args()
    wanted = [case for case in args.cases.split(",") if case]
    results = []
    print("%-18s %10s %10s %8s %8s" % (
        "case", "ours MB/s", "floor MB/s", "ratio", "target"))
    for line in lines(args):
        for result in run(line, wanted):
            results.append(judged(result))
            show(result)
    ratios.write(args.out, "data", [figure(r) for r in results], results)
    print("written to %s" % os.path.relpath(args.out))


if __name__ == "__main__":
    main()
