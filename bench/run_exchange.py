"""Runs the exchange benchmark: a center server against bare loops.

    run_exchange.py [--rounds N] [--transports a,b] [--sizes KIB,..]
                    [--workers 1,2,..] [--restart-kib KIB] [--bin-dir DIR]
                    [--out FILE]

bench_exchange answers `side transport kib iters` with milliseconds; the sides
of a case (bare, hooke: center in memory, file: with a center file) take turns,
round by round. Times are medians over rounds, ratio is the median of
bare / ours of one round: 1 means as fast as the bare loop, which streams the
same bytes with the same arithmetic and nothing else (bench_exchange.c says
exactly what). Then 1, 2, 4, 8 and 16 worker processes share one center, and a
center with a file is killed in the middle of its work and started again.
Writes build/bench/exchange.json and prints tables; `below` marks a ratio that
misses its target. Exits 0 whatever the ratios are. Needs nothing but the
standard library.
"""

import argparse
import os
import statistics
import subprocess
import sys

import ratios

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

SIZES = {64: "64 KiB", 4096: "4 MiB", 65536: "64 MiB", 262144: "256 MiB"}
ROUND_MS = 250  # time a side gets in a round


def target(transport, kib):
    """(ratio that is held to it, least bare / ours)."""
    if kib == 64:
        # Control of shared memory goes over a unix socket, so its round trip
        # is held to that of a bare one; the ratio to semaphores stands beside.
        return ("socket" if transport == "shm" else "hooke"), 1 / 1.3
    # The floor of shared memory copies to an undo buffer, as a file does.
    return ("file", 0.85) if transport == "shm" else ("hooke", 0.9)


class Program:
    """The child process."""

    def __init__(self, path):
        self.path = path
        self.child = subprocess.Popen([path], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        try:
            self.child.stdin.write(line + "\n")
            self.child.stdin.flush()
            return float(self.child.stdout.readline())
        except (BrokenPipeError, ValueError):
            sys.exit("%s: no answer to %s" % (self.path, line))

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def run_case(path, transport, kib, rounds):
    """Medians of one transport and size."""
    program = Program(path)
    what = {side: "%s %s %d" % (side, transport, kib)
            for side in ("bare", "hooke", "file")}
    if target(transport, kib)[0] == "socket":
        what["socket"] = "bare unix %d" % kib
    iters = {}
    for side, line in what.items():
        once = program.ask(line + " 2")
        iters[side] = max(2, min(2000, int(ROUND_MS / max(once, 1e-3))))
    times = {side: [] for side in what}
    for _ in range(rounds):
        for side, line in what.items():
            times[side].append(program.ask("%s %d" % (line, iters[side])))
    program.close()
    case = {"transport": transport, "kib": kib,
            "bare_ms": statistics.median(times["bare"]),
            "bare_range_ms": [min(times["bare"]), max(times["bare"])]}
    for side in ("hooke", "file"):
        ratios = [b / t for b, t in zip(times["bare"], times[side])]
        case[side + "_ms"] = statistics.median(times[side])
        case[side + "_ratio"] = statistics.median(ratios)
    if "socket" in times:
        case["socket_ms"] = statistics.median(times["socket"])
        case["socket_ratio"] = statistics.median(
            s / t for s, t in zip(times["socket"], times["hooke"]))
    case["gb_s"] = 2 * kib * 1024 / case["hooke_ms"] * 1e-6
    side, least = target(transport, kib)
    case["target"] = {"side": side, "ratio": least,
                      "met": case[side + "_ratio"] >= least}
    return case


def run_workers(path, transport, kib, counts, rounds):
    """Total throughput of several workers on one center."""
    results = {n: [] for n in counts}
    rss = {n: [] for n in counts}
    for _ in range(rounds):
        for n in counts:
            program = Program(path)
            results[n].append(
                program.ask("workers %s %d %d" % (transport, kib, n)))
            rss[n].append(program.ask("rss"))
            program.close()
    one = statistics.median(results[counts[0]])
    return [{"transport": transport, "kib": kib, "workers": n,
             "gb_s": statistics.median(results[n]),
             "of_one": statistics.median(results[n]) / one,
             "server_mib": statistics.median(rss[n]),
             "target": {"ratio": 0.8,
                        "met": statistics.median(results[n]) >= 0.8 * one}}
            for n in counts]


def run_restart(path, kib):
    """Milliseconds until a killed center listens again."""
    program = Program(path)
    ms = program.ask("restart unix %d 3" % kib)
    program.close()
    return {"kib": kib, "ms": ms, "target": {"ms": 1000, "met": ms < 1000}}


def show(cases, crowds, restart):
    print("%-6s %-8s %10s %10s %10s %8s %8s" % (
        "", "size", "bare ms", "ours ms", "file ms", "ratio", "file"))
    for c in cases:
        below = "" if c["target"]["met"] else "  below %.2f" % (
            c["target"]["ratio"])
        if "socket_ratio" in c:
            below = "  %.2f of a bare unix socket%s" % (
                c["socket_ratio"], below)
        print("%-6s %-8s %10.3f %10.3f %10.3f %8.2f %8.2f%s" % (
            c["transport"], SIZES.get(c["kib"], c["kib"]), c["bare_ms"],
            c["hooke_ms"], c["file_ms"], c["hooke_ratio"], c["file_ratio"],
            below))
    if crowds:
        print("\n%-6s %8s %10s %8s %12s" % (
            "", "workers", "GB/s", "of one", "server MiB"))
    for c in crowds:
        below = "" if c["target"]["met"] else "  below 0.80"
        print("%-6s %8d %10.2f %8.2f %12.1f%s" % (
            c["transport"], c["workers"], c["gb_s"], c["of_one"],
            c["server_mib"], below))
    if restart:
        print("\nrestart of a center of %.0f MiB: %.1f ms%s" % (
            restart["kib"] / 1024, restart["ms"],
            "" if restart["target"]["met"] else "  above 1000"))


def figures(cases, crowds, restart):
    """The ratios in the common form."""
    found = []
    for c in cases:
        for side in ("hooke", "file", "socket"):
            found.append(ratios.higher(
                "%s_%dk_%s" % (c["transport"], c["kib"], side),
                c.get(side + "_ratio"), "x bare"))
    found += [ratios.higher("%s_%d_workers" % (c["transport"], c["workers"]),
                            c["of_one"], "x one worker")
              for c in crowds if c["workers"] > 1]
    if restart:
        found.append(ratios.lower("restart_%dk" % restart["kib"],
                                  restart["ms"], "ms"))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--transports", default="tcp,tls,unix,shm")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--workers", default="1,2,4,8,16")
    parser.add_argument("--worker-kib", type=int, default=16384)
    parser.add_argument("--restart-kib", type=int, default=1048576,
                        help="0: leave it out")
    parser.add_argument("--bin-dir", default=os.path.join(
        ROOT, "build", "release", "bench"))
    parser.add_argument("--out", default=os.path.join(
        ROOT, "build", "bench", "exchange.json"))
    args = parser.parse_args()
    path = os.path.join(args.bin_dir, "bench_exchange")
    cases = []
    for transport in filter(None, args.transports.split(",")):
        for kib in filter(None, args.sizes.split(",")):
            cases.append(run_case(path, transport, int(kib), args.rounds))
    crowds = []
    counts = [int(n) for n in args.workers.split(",") if n]
    if counts:
        for transport in ("tcp", "unix"):
            crowds += run_workers(path, transport, args.worker_kib, counts,
                                  max(1, args.rounds // 2))
    restart = (run_restart(path, args.restart_kib) if args.restart_kib
               else None)
    show(cases, crowds, restart)
    ratios.write(args.out, "exchange", figures(cases, crowds, restart),
                 {"exchange": cases, "workers": crowds, "restart": restart})
    print("wrote %s" % os.path.relpath(args.out))


if __name__ == "__main__":
    main()
