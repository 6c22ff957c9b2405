"""Runs the step benchmark: Hooke, the bare C programs and PyTorch side by side.

    run_step.py [--rounds N] [--cases a,b] [--threads 1,2] [--bin-dir DIR]
                [--peer-python PROGRAM] [--out FILE]

Each program is a child process that answers `case threads iters` with the
milliseconds per step. First the gradients of every case are compared with
PyTorch's; then the programs take turns, round by round. A ratio is the median
over rounds of peer time / our time of that round. Writes build/bench/step.json
and prints a table. Exits 0 whatever the ratios are (`below` marks one under
its target), 1 when gradients differ or Hooke's program is missing.
Needs nothing but the standard library; PyTorch is used by the peer only.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

import ratios

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

# Case: name for Hooke and the bare program, bare program, target by threads,
# target at one thread against a newer PyTorch with fused optimizers.
CASES = {
    "mlp64": ("mlp64", "bare_mlp", {1: 3.2}, 2.0),
    "mlp128": ("mlp128", "bare_mlp", {1: 2.5}, 1.8),
    "lenet64": ("lenet64", "bare_lenet", {1: 1.6}, 1.4),
    "lenet64_cl": ("lenet64", "bare_lenet", {1: 1.3}, 1.4),
    "resnet20_64": ("resnet20_64", "bare_resnet", {1: 1.4, 2: 1.6}, 1.4),
    "rec128": ("rec128", "bare_rec", {1: 5.0}, None),
    "rec512": ("rec512", "bare_rec", {1: 3.5}, None),
}
# The same in bf16, PyTorch's with autocast: CPUs with AVX512-BF16.
BF16 = ["mlp64", "mlp128", "lenet64", "lenet64_cl", "resnet20_64", "rec512"]
CASES.update({c + "_bf16": (CASES[c][0] + "_bf16", None, {}, None)
              for c in BF16})
TOLERANCE = 1e-4  # of a tensor's largest value
# 7 bits of fraction turn relus and move single elements by a fifth: bf16 may be
# that much farther from double precision than PyTorch's autocast is.
TIMES_BF16 = 1.5
ROUND_MS = 300    # time a program gets in a round, at least


class Program:
    """A child process that speaks the `case threads iters` protocol."""

    def __init__(self, command):
        self.command = command
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        try:
            self.child.stdin.write(line + "\n")
            self.child.stdin.flush()
            answer = self.child.stdout.readline().strip()
        except BrokenPipeError:
            answer = ""
        if not answer or answer.startswith("error"):
            sys.exit("%s: %s: %s" % (self.command[-1], line,
                                     answer or "ended"))
        return answer

    def step_ms(self, case, threads, iters):
        return float(self.ask("%s %d %d" % (case, threads, iters)))

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def compare_gradients(program, ours, case, peer, folder):
    """Returns (worst error, its tensor, the peer's own error, reason)."""
    path = os.path.join(folder, "step_%s.bin" % case)
    try:
        subprocess.run([program, "dump", ours, path], check=True)
        text = subprocess.run(peer + ["check", case, path], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
    except subprocess.CalledProcessError as e:
        return None, "", None, "%s failed (%d)" % (e.cmd[0], e.returncode)
    finally:
        if os.path.exists(path):
            os.remove(path)
    worst, where, own = 0.0, "", 0.0
    for line in text.splitlines():
        fields = line.split()
        if len(fields) != 3 or not fields[1][0].isdigit():
            return None, fields[0], None, line
        error = float(fields[1])
        own = max(own, float(fields[2]))
        if not error <= worst:  # takes a nan as well
            worst, where = error, fields[0]
    if not text:
        return None, "", None, "nothing compared"
    limit = TIMES_BF16 * own if case.endswith("_bf16") else TOLERANCE
    return worst, where, own, "" if worst <= limit else "too large"


def check_all(cases, programs, peer, folder):
    """Compares gradients; returns the cases of Hooke that failed."""
    failed = set()
    print("gradients against PyTorch in double precision, relative to the "
          "tensor's maximum (limit %g; in bf16 %g times PyTorch's):" %
          (TOLERANCE, TIMES_BF16))
    for case in cases:
        for kind, path in programs(case):
            worst, where, own, why = compare_gradients(
                path, CASES[case][0], case, peer, folder)
            if worst is None:
                print("  %-12s %-5s FAILED: %s" % (case, kind, why))
            else:
                print("  %-12s %-5s worst %.2g in %s, PyTorch's own "
                      "%.2g%s" % (case, kind, worst, where, own,
                                  "  FAILED" if why else ""))
            if why:
                failed.add((case, kind))
    sys.stdout.flush()
    return failed


def time_case(case, threads, running, rounds):
    """Times per round of each running program: {kind: [ms]}."""
    iters, out = {}, {}
    for kind, program in running.items():
        name = case if kind == "peer" else CASES[case][0]
        program.step_ms(name, threads, 2)  # build, first touch
        ms = program.step_ms(name, threads, 3)
        iters[kind] = max(2, int(ROUND_MS / max(ms, 1e-3)))
        out[kind] = []
    order = list(running)
    for _ in range(rounds):
        for kind in order:
            name = case if kind == "peer" else CASES[case][0]
            out[kind].append(running[kind].step_ms(name, threads,
                                                   iters[kind]))
            time.sleep(0.01)  # lets its idle OpenMP threads go to sleep
        order.append(order.pop(0))
    return out


class Load:
    """How much of the machine other processes take between two moments."""

    def __init__(self):
        self.start, self.own = self.busy(), self.children()

    @staticmethod
    def busy():
        with open("/proc/stat") as f:
            t = [int(x) for x in f.readline().split()[1:9]]
        return (sum(t) - t[3] - t[4]) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def children():
        u = resource.getrusage(resource.RUSAGE_CHILDREN)
        return u.ru_utime + u.ru_stime

    def others(self, seconds):
        """Share of one CPU; call it when all children have ended."""
        used = self.busy() - self.start - (self.children() - self.own)
        return max(0.0, used / max(seconds, 1e-3))


def ratio(over, under):
    if not over or not under:
        return None
    return statistics.median(a / b for a, b in zip(over, under))


def median(values):
    return statistics.median(values) if values else None


def cell(value, form="%.3f"):
    return "-" if value is None else form % value


def print_table(rows):
    print("\n%-12s %3s %10s %10s %10s %7s %7s %6s" %
          ("case", "thr", "ours ms", "bare ms", "peer ms", "ratio", "target",
           "/bare"))
    for r in rows:
        note = ""
        if r["ratio"] is not None and r["target"] is not None:
            note = "  below" if r["ratio"] < r["target"] else "  ok"
        if r["bare_ratio"] is not None and r["bare_ratio"] > 1.15:
            note += "  more than 1.15 x bare"
        print("%-12s %3d %10s %10s %10s %7s %7s %6s%s" %
              (r["name"], r["threads"], cell(r["ours_ms"]), cell(r["bare_ms"]),
               cell(r["peer_ms"]), cell(r["ratio"], "%.2f"),
               cell(r["target"], "%.1f"), cell(r["bare_ratio"], "%.2f"), note))


def figures(rows, peer):
    """The ratios in the common form."""
    found, unit = [], ratios.peer_unit(peer)
    for r in rows:
        case = "%s/%d" % (r["name"], r["threads"])
        found += [ratios.higher(case, r["ratio"], unit),
                  ratios.lower(case + "/bare", r["bare_ratio"],
                               "of bare C's time")]
    return found


def has_bf16():
    with open("/proc/cpuinfo") as f:
        return " avx512_bf16 " in f.read()


def options():
    p = argparse.ArgumentParser(description="step benchmark")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--cases", default=",".join(
        c for c in CASES if not c.endswith("_bf16") or has_bf16()))
    p.add_argument("--threads", default="1,2")
    p.add_argument("--bin-dir",
                   default=os.path.join(ROOT, "build", "release", "bench"))
    p.add_argument("--peer-python",
                   default=os.environ.get("PEER_PYTHON") or "/usr/bin/python3")
    p.add_argument("--out",
                   default=os.path.join(ROOT, "build", "bench", "step.json"))
    o = p.parse_args()
    o.cases = [c for c in o.cases.split(",") if c]
    o.threads = [int(t) for t in o.threads.split(",")]
    for c in o.cases:
        if c not in CASES:
            p.error("no case %s (known: %s)" % (c, ", ".join(CASES)))
    if o.rounds < 1 or min(o.threads) < 1:
        p.error("--rounds and --threads must be positive")
    return o


def has_torch(python):
    try:
        return subprocess.run([python, "-c", "import torch, numpy"],
                              stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def main():
    opt = options()
    folder = os.path.dirname(os.path.abspath(opt.out))
    os.makedirs(folder, exist_ok=True)
    peer = [opt.peer_python, os.path.join(HERE, "peer_step.py")]
    with_peer = has_torch(opt.peer_python)

    def programs(case):
        names = (("ours", "bench_step"), ("bare", CASES[case][1]))
        paths = [(k, os.path.join(opt.bin_dir, n)) for k, n in names if n]
        return [(k, p) for k, p in paths if os.access(p, os.X_OK)]

    have_ours = os.access(os.path.join(opt.bin_dir, "bench_step"), os.X_OK)
    if not have_ours:
        print("bench_step is not built in " + opt.bin_dir)
    info, failed = None, set()
    if with_peer:
        peer_program = Program(peer)
        info = peer_program.ask("info")
        print("peer: " + info)
        if "/blas/libblas" in info:
            print("WARNING: the peer runs on the reference BLAS; its times "
                  "mean nothing. Install libopenblas0-pthread.")
        failed = check_all(opt.cases, programs, peer, folder)
    else:
        print("skipped: python3-torch is not installed")
    newer = bool(info) and not info.startswith("torch 1.")

    children, rows = {}, []
    load, start = Load(), time.monotonic()
    for case in opt.cases:
        running = {}
        for kind, path in programs(case):
            if (case, kind) in failed:
                continue
            if path not in children:
                children[path] = Program([path])
            running[kind] = children[path]
        if with_peer:
            running["peer"] = peer_program
        for threads in opt.threads:
            t = time_case(case, threads, running, opt.rounds)
            ours, bare, other = t.get("ours"), t.get("bare"), t.get("peer")
            target = CASES[case][2].get(threads)
            if newer:
                target = CASES[case][3] if threads == 1 else None
            rows.append({
                "name": case, "threads": threads, "ours_ms": median(ours),
                "peer_ms": median(other), "ratio": ratio(other, ours),
                "bare_ms": median(bare), "bare_ratio": ratio(ours, bare),
                "peer_to_bare": ratio(other, bare), "target": target})
            r = rows[-1]
            print("%s, %d threads: ours %s, bare %s, peer %s ms" %
                  (case, threads, cell(r["ours_ms"]), cell(r["bare_ms"]),
                   cell(r["peer_ms"])), flush=True)
    for program in children.values():
        program.close()
    if with_peer:
        peer_program.close()
    others = load.others(time.monotonic() - start)
    ratios.write(opt.out, "step", figures(rows, info),
                 {"cases": rows, "peer": info, "other_load": others})
    print_table(rows)
    print("\nratio: peer / ours, /bare: ours / bare, medians of %d rounds; "
          "written to %s" % (opt.rounds, os.path.relpath(opt.out)))
    if others > 0.05:
        print("WARNING: other processes used %.2f CPUs meanwhile; repeat on a "
              "quiet machine" % others)
    bad = not have_ours or any(kind == "ours" for _, kind in failed)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
