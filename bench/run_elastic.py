"""Runs the elastic-averaging benchmark: Hooke against its floors.

    run_elastic.py [--rounds N] [--cases a,b] [--bin-dir DIR] [--out FILE]

bench_elastic answers `side case iters` with milliseconds; the two sides of a
case take turns, round by round. Times are medians over rounds, floor_ratio is
the median of ours / floor of one round. The floor of an exchange is a plain
in-place loop over the same number of floats (exchange_64m: 64 MiB of
parameters, exchange_mlp: 536 k); that of workers_mlp64 are two independent
training loops on two cores. Cases without a target show other forms of the
exchange. Writes build/bench/elastic.json and prints a table; `below` marks a
ratio that misses its target. Exits 0 whatever the ratios are. Needs nothing
but the standard library.
"""

import argparse
import os
import statistics
import subprocess
import sys

import ratios

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

# Case: (its floor, most that ours / floor may be). 0.85 of the bandwidth and
# 0.95 of the examples per second are 1 / 0.85 and 1 / 0.95 of the time.
CASES = {
    "exchange_64m": ("exchange_64m", 1 / 0.85),
    "exchange_mlp": ("exchange_mlp", 1.3),
    "workers_mlp64": ("workers_mlp64", 1 / 0.95),
    "exchange_64m_free": ("exchange_64m", None),
    "exchange_64m_view": ("exchange_64m", None),
    "exchange_64m_downpour": ("exchange_64m", None),
}
BYTES = {"exchange_64m": 4 * 4 * 2**24, "exchange_mlp": 4 * 4 * 535818}
ROUND_MS = {"workers_mlp64": 800}  # time a side gets in a round; else 200


class Program:
    """The child process."""

    def __init__(self, path):
        self.path = path
        self.child = subprocess.Popen([path], stdin=subprocess.PIPE,
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
    sides = {"ours": ("hooke", case), "floor": ("plain", CASES[case][0])}
    iters = {}
    for side, (who, what) in sides.items():
        program.ms(who, what, 1)  # sets the case up
        first = program.ms(who, what, 5)
        iters[side] = max(5, min(2000, int(
            ROUND_MS.get(case, 200) / max(first, 1e-3))))
    times = {side: [] for side in sides}
    for number in range(rounds):
        order = list(sides) if number % 2 == 0 else list(sides)[::-1]
        for side in order:
            who, what = sides[side]
            if case != "workers_mlp64":  # which warms up by itself
                program.ms(who, what, 1)  # the other side is in cache
            times[side].append(program.ms(who, what, iters[side]))
    return times


def result(case, times):
    floor, target = CASES[case]
    ratio = statistics.median(
        a / b for a, b in zip(times["ours"], times["floor"]))
    ours = statistics.median(times["ours"])
    size = BYTES.get(floor)
    return {"name": case, "ours_ms": ours,
            "floor_ms": statistics.median(times["floor"]),
            "floor_ratio": ratio, "floor_target": target,
            "gb_per_s": size / ours * 1e-6 if size else None,
            "examples_per_s": 2 * 64 / ours * 1e3 if not size else None,
            "below": target is not None and ratio > target}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--bin-dir", default=os.path.join(
        ROOT, "build", "release", "bench"))
    parser.add_argument("--out", default=os.path.join(
        ROOT, "build", "bench", "elastic.json"))
    args = parser.parse_args()
    program = Program(os.path.join(args.bin_dir, "bench_elastic"))
    print("%-22s %10s %10s %8s %8s %10s" % (
        "case", "ours ms", "floor ms", "/floor", "at most", "GB/s"))
    cases = []
    for case in args.cases.split(","):
        if case not in CASES:
            sys.exit("no case %s; there are %s" % (case, ", ".join(CASES)))
        r = result(case, measure(program, case, args.rounds))
        cases.append(r)
        print("%-22s %10.4f %10.4f %8.3f %8s %10s%s" % (
            case, r["ours_ms"], r["floor_ms"], r["floor_ratio"],
            "%.3f" % r["floor_target"] if r["floor_target"] else "-",
            "%.1f" % r["gb_per_s"] if r["gb_per_s"] else "-",
            "  below" if r["below"] else ""), flush=True)
    program.close()
    ratios.write(args.out, "elastic", [
        ratios.lower(r["name"], r["floor_ratio"], "of the floor's time")
        for r in cases], cases)


if __name__ == "__main__":
    main()
