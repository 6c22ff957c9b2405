"""Runs the estimator benchmark: what it costs over a loop written by hand.

    run_estimator.py [--rounds N] [--steps N] [--starts N] [--bin-dir DIR]
                     [--out FILE]

One program runs both loops in turns, so that they see the same machine: the
bare session loop, and the estimator with checkpoints, summaries, log lines
and a hook. Overhead is the median over rounds of full / bare of that round.
CPU time stands beside it: on a busy machine it is the steadier one.
The start is timed from before the process exists to the end of its first
step, once for every new process. Writes build/bench/estimator.json and prints
a table. Exits 0 whatever the figures are (`above` marks one over its target).
Needs nothing but the standard library.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

import ratios

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

TARGETS = {"overhead": 1.02, "first_step_ms": 100.0, "sweep": 1.10}


def find_program(bin_dir):
    folders = [bin_dir] if bin_dir else [
        os.path.join(ROOT, "build", "release", "bench"),
        os.path.join(ROOT, "build", "bench")]
    for folder in folders:
        path = os.path.join(folder, "bench_estimator")
        if os.access(path, os.X_OK):
            return path
    sys.exit("bench_estimator is not built: cmake --build ... --target bench")


class Server:
    def __init__(self, program):
        self.child = subprocess.Popen([program, "serve"], text=True,
                                      stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE)

    def ask(self, what, steps):
        self.child.stdin.write("%s %d\n" % (what, steps))
        self.child.stdin.flush()
        answer = self.child.stdout.readline().split()
        if len(answer) != 2:
            sys.exit("bench_estimator ended")
        return float(answer[0]), float(answer[1])

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def measure_overhead(server, rounds, steps):
    """Medians of bare, full and full / bare, by the clock and by the CPU."""
    for what in ("bare", "full"):
        server.ask(what, steps)  # warm up
    times = {"bare": [], "full": []}
    for i in range(rounds):
        for what in ("bare", "full") if i % 2 == 0 else ("full", "bare"):
            times[what].append(server.ask(what, steps))
    result = {}
    for k, clock in enumerate(("wall", "cpu")):
        bare = [t[k] for t in times["bare"]]
        full = [t[k] for t in times["full"]]
        result[clock] = {
            "bare_ms": statistics.median(bare),
            "full_ms": statistics.median(full),
            "ratio": statistics.median(f / b for f, b in zip(full, bare))}
    return result


def measure_sweep(server, rounds):
    server.ask("sweep", 20)
    ratios = []
    for _ in range(rounds):
        plain = server.ask("full", 1000)[0] * 1000
        ratios.append(server.ask("sweep", 200)[0] / plain)
    return statistics.median(ratios)


def measure_starts(program, starts):
    parts = []
    for _ in range(starts + 1):
        out = subprocess.run([program, "first", "%.9f" % time.monotonic()],
                             capture_output=True, text=True, check=True)
        words = out.stdout.split()
        part = {"total": float(words[0])}
        part.update(zip(words[1::2], map(float, words[2::2])))
        parts.append(part)
    parts = parts[1:]  # the first one reads the files
    return {key: 1e3 * statistics.median(p[key] for p in parts)
            for key in parts[0]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--starts", type=int, default=11)
    parser.add_argument("--bin-dir")
    parser.add_argument("--out", default=os.path.join(
        ROOT, "build", "bench", "estimator.json"))
    args = parser.parse_args()
    program = find_program(args.bin_dir)
    server = Server(program)
    loops = measure_overhead(server, args.rounds, args.steps)
    sweep = measure_sweep(server, max(3, args.rounds // 3))
    server.close()
    start = measure_starts(program, args.starts)
    result = {"loops": loops, "overhead": loops["wall"]["ratio"],
              "sweep": sweep, "first_step_ms": start["total"],
              "first_step_parts_ms": start, "targets": TARGETS}
    ratios.write(args.out, "estimator", [
        ratios.lower("overhead", result["overhead"], "of a bare loop's time"),
        ratios.lower("overhead_cpu", loops["cpu"]["ratio"],
                     "of a bare loop's CPU time"),
        ratios.lower("sweep", sweep, "of one run's time"),
        ratios.lower("first_step", start["total"], "ms")], result)
    for clock, t in loops.items():
        print("%-4s  bare %.4f ms a step, full %.4f, ratio %.4f" % (
            clock, t["bare_ms"], t["full_ms"], t["ratio"]))
    rows = (("overhead", "full / bare", result["overhead"]),
            ("sweep", "five times 200 steps / 1000 steps", sweep),
            ("first_step_ms", "process start to first step, ms",
             start["total"]))
    for key, label, value in rows:
        print("%-34s %8.3f  (target %g)%s" % (
            label, value, TARGETS[key],
            "" if value <= TARGETS[key] else "  above"))
    print("of the start: " + ", ".join(
        "%s %.1f ms" % (k, v) for k, v in start.items() if k != "total"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
