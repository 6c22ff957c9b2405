"""Runs the optimizer benchmark: Hooke, plain C loops and PyTorch.

    run_optim.py [--rounds N] [--cases a,b] [--threads 1,2] [--bin-dir DIR]
                 [--peer-python PROGRAM] [--out FILE]

bench_optim (Hooke and the plain loops) and peer_optim.py (PyTorch) are child
processes that answer with milliseconds per step; they take turns, round by
round. Times are medians over rounds, ratios are medians of the ratios of one
round. PyTorch is timed one tensor after the other, in its foreach form and,
where it has one, fused; peer_ms is the fastest and peer says which. floor_ms is
the plain fused loop, one thread, compiled for this machine. Writes build/bench/optim.json and
prints a table; `below` marks a ratio under its target. Exits 0 whatever the
ratios are. Needs nothing but the standard library.
"""

import argparse
import os
import statistics
import subprocess
import sys

import ratios

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

# Case: target against PyTorch at one thread, target against the plain loop.
CASES = {
    "adam_536k": (8.0, 1.15),
    "adam_25m": (5.0, 1.15),
    "momentum_536k": (None, 1.15),
    "momentum_25m": (None, 1.15),
    "rmsprop_536k": (None, 1.15),
    "rmsprop_25m": (None, 1.15),
    "adagrad_536k": (None, 1.15),
    "adagrad_25m": (None, 1.15),
    "adamw_536k": (None, 1.15),
    "adamw_25m": (None, 1.15),
    "adam_ema_536k": (None, 1.15),
    "adam_ema_25m": (None, 1.15),
    "adam_bf16_25m": (1.2, 1.15),
    "lazy_adam": (6.0, None),
}
VERSION = "import torch; print('torch', torch.__version__)"
ROUND_MS = 120  # time a program gets in a round, at least


class Program:
    """A child process that answers a line with milliseconds per step."""

    def __init__(self, command):
        self.command = command
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)

    def ms(self, who, threads, iters):
        try:
            self.child.stdin.write("%s %d %d\n" % (who, threads, iters))
            self.child.stdin.flush()
            answer = self.child.stdout.readline().strip()
            return None if answer == "none" else float(answer)
        except (BrokenPipeError, ValueError):
            sys.exit("%s: no answer to %s" % (self.command[-1], who))

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def measure(hooke, peer, case, threads, rounds):
    """Milliseconds by side: a list of one value a round."""
    sides = {"ours": (hooke, "hooke " + case)}
    if threads == 1 and CASES[case][1] is not None:
        sides["floor"] = (hooke, "plain " + case)
    if peer is not None and case == "lazy_adam":
        sides["peer"] = (peer, case)
    elif peer is not None:
        same = case.replace("_bf16", "")  # PyTorch keeps moments in floats
        for way in "single", "foreach", "fused":
            sides[way] = (peer, "%s:%s" % (same, way))
    iters = {}
    for side, (program, who) in list(sides.items()):
        if program.ms(who, threads, 1) is None:  # sets the case up
            del sides[side]
            continue
        first = program.ms(who, threads, 2)
        iters[side] = max(1, min(1000, int(ROUND_MS / max(first, 1e-3))))
    times = {side: [] for side in sides}
    for _ in range(rounds):
        for side, (program, who) in sides.items():
            program.ms(who, threads, 1)  # the other side's data is in cache
            times[side].append(program.ms(who, threads, iters[side]))
    return times


def ratio(a, b):
    return statistics.median(x / y for x, y in zip(a, b))


def result(case, threads, times):
    median = {side: statistics.median(t) for side, t in times.items()}
    peer = min((s for s in median if s not in ("ours", "floor")),
               key=median.get, default=None)
    out = {"name": case, "threads": threads, "ours_ms": median["ours"],
           "peer": peer, "peer_ms": median.get(peer), "ratio": None,
           "floor_ms": median.get("floor"), "floor_ratio": None}
    if peer:
        out["ratio"] = ratio(times[peer], times["ours"])
    if "floor" in times:
        out["floor_ratio"] = ratio(times["ours"], times["floor"])
    target, floor = CASES[case]
    out["target"] = target if threads == 1 else None
    out["floor_target"] = floor if threads == 1 else None
    out["below"] = bool(
        (out["target"] and out["ratio"] and out["ratio"] < target) or
        (out["floor_target"] and out["floor_ratio"] and
         out["floor_ratio"] > floor))
    return out


def figures(cases, peer):
    """The ratios in the common form."""
    found, unit = [], ratios.peer_unit(peer)
    for r in cases:
        case = "%s/%d" % (r["name"], r["threads"])
        found += [ratios.higher(case, r["ratio"], unit),
                  ratios.lower(case + "/floor", r["floor_ratio"],
                               "of a plain loop's time")]
    return found


def text(value, form):
    return form % value if value is not None else "-"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--bin-dir", default=os.path.join(
        ROOT, "build", "release", "bench"))
    parser.add_argument("--peer-python", default=os.environ.get(
        "PEER_PYTHON", "/usr/bin/python3"))
    parser.add_argument("--out", default=os.path.join(
        ROOT, "build", "bench", "optim.json"))
    args = parser.parse_args()
    hooke = Program([os.path.join(args.bin_dir, "bench_optim")])
    peer = None
    found = subprocess.run([args.peer_python, "-c", VERSION], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if found.returncode == 0:
        peer = Program([args.peer_python,
                        os.path.join(HERE, "peer_optim.py")])
    else:
        print("no PyTorch for %s: ratios are left out" % args.peer_python)
    print("%-14s %7s %9s %9s %-8s %6s %9s %6s" % (
        "case", "threads", "ours ms", "torch ms", "way", "x", "floor ms",
        "/floor"))
    cases = []
    for case in args.cases.split(","):
        for threads in (int(t) for t in args.threads.split(",")):
            r = result(case, threads,
                       measure(hooke, peer, case, threads, args.rounds))
            cases.append(r)
            print("%-14s %7d %9.3f %9s %-8s %6s %9s %6s%s" % (
                case, threads, r["ours_ms"], text(r["peer_ms"], "%.3f"),
                r["peer"] or "-", text(r["ratio"], "%.2f"),
                text(r["floor_ms"], "%.3f"),
                text(r["floor_ratio"], "%.3f"),
                "  below" if r["below"] else ""), flush=True)
    hooke.close()
    if peer is not None:
        peer.close()
    ratios.write(args.out, "optim", figures(cases, found.stdout), cases)


if __name__ == "__main__":
    main()
