"""Runs the checkpoint benchmark: Hooke against plain file calls.

    run_files.py [--rounds N] [--cases a,b] [--bin-dir DIR] [--dir DIR]
                 [--out FILE]

bench_files answers `side case iters` with milliseconds; the two sides of a
case take turns, round by round. Times are medians over rounds, floor_ratio is
the median of ours / floor of one round: write and fsync (or read) of the same
gibibyte, and one memcpy of the 100 MB whose save a step waits for. The files
are written under DIR (build/bench/files.tmp), so that is the disk that is
measured. Cases without a target are for information. Writes
build/bench/files.json and prints a table; `above` marks a ratio that misses
its target. Exits 0 whatever the ratios are. Needs nothing but the standard
library.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys

import ratios

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

# Case: (its floor, most that ours / floor may be, iterations a round). 0.8 of
# the speed is 1 / 0.8 of the time.
CASES = {
    "save_1g": ("save_1g", 1 / 0.8, 1),
    "load_1g": ("load_1g", 1 / 0.8, 1),
    "load_1g_cold": ("load_1g_cold", 1 / 0.8, 1),
    "tf_save_1g": ("save_1g", 1 / 0.8, 1),
    "tf_load_1g": ("load_1g", 1 / 0.8, 1),
    "pause_100m": ("pause_100m", 1.5, 5),
    "pause_first": ("pause_100m", None, 1),
}
BYTES = {"pause_100m": 100000000, "pause_first": 100000000}


class Program:
    """The child process."""

    def __init__(self, path, folder):
        self.path = path
        self.child = subprocess.Popen([path, folder], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)

    def ms(self, side, case, iters):
        try:
            self.child.stdin.write("%s %s %d\n" % (side, case, iters))
            self.child.stdin.flush()
            return float(self.child.stdout.readline())
        except (BrokenPipeError, ValueError):
            sys.exit("%s: no answer to %s %s" % (self.path, side, case))

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def measure(program, case, rounds):
    """Milliseconds by side: a list of one value a round."""
    floor, _, iters = CASES[case]
    sides = {"ours": ("hooke", case), "floor": ("plain", floor)}
    for who, what in sides.values():
        program.ms(who, what, 1)  # sets the case up
    times = {side: [] for side in sides}
    for number in range(rounds):
        order = list(sides) if number % 2 == 0 else list(sides)[::-1]
        for side in order:
            who, what = sides[side]
            times[side].append(program.ms(who, what, iters))
    return times


def result(case, times):
    ratio = statistics.median(
        a / b for a, b in zip(times["ours"], times["floor"]))
    ours = statistics.median(times["ours"])
    target = CASES[case][1]
    return {"name": case, "ours_ms": ours,
            "floor_ms": statistics.median(times["floor"]),
            "floor_ratio": ratio, "floor_target": target,
            "gb_per_s": BYTES.get(case, 2**30) / ours * 1e-6,
            "above": target is not None and ratio > target}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--bin-dir", default=os.path.join(
        ROOT, "build", "release", "bench"))
    parser.add_argument("--dir", default=os.path.join(
        ROOT, "build", "bench", "files.tmp"))
    parser.add_argument("--out", default=os.path.join(
        ROOT, "build", "bench", "files.json"))
    args = parser.parse_args()
    for case in args.cases.split(","):
        if case not in CASES:
            sys.exit("no case %s; there are %s" % (case, ", ".join(CASES)))
    os.makedirs(args.dir, exist_ok=True)
    program = Program(os.path.join(args.bin_dir, "bench_files"), args.dir)
    print("%-14s %10s %10s %8s %8s %8s" % (
        "case", "ours ms", "floor ms", "/floor", "at most", "GB/s"))
    cases = []
    try:
        for case in args.cases.split(","):
            r = result(case, measure(program, case, args.rounds))
            cases.append(r)
            print("%-14s %10.2f %10.2f %8.3f %8s %8.2f%s" % (
                case, r["ours_ms"], r["floor_ms"], r["floor_ratio"],
                "%.3f" % r["floor_target"] if r["floor_target"] else "-",
                r["gb_per_s"], "  above" if r["above"] else ""), flush=True)
        program.close()
    finally:
        shutil.rmtree(args.dir, ignore_errors=True)
    ratios.write(args.out, "files", [
        ratios.lower(r["name"], r["floor_ratio"], "of plain calls' time")
        for r in cases], cases)


if __name__ == "__main__":
    main()
