#!/usr/bin/env python3
"""Runs the benches of the Python package.

    run_python.py [--part overhead,peers] [--rounds N] [--address SCHEME]
    run_python.py --cuda [--models resnet50,gpt2] [--rounds N]
    run_python.py --pack

overhead: a loop of PyTorch with and without `join` (period 10), block by block in
turns; the ratio is the median of with / without. The center is a process of its
own. On the CPU an MLP of 536 k parameters on one thread; with --cuda ResNet-50
and GPT-2 small with bf16 autocast. peers: four processes average 25 M floats on
this machine, all of them over TCP on loopback, by Hooke, by gloo (PyTorch's
PeriodicModelAverager), by Hivemind and by torchft's LocalSGD where they are
installed: seconds of an exchange, seconds that training stands still, and what
the others do when one is killed with -9.

Needs PyTorch in this Python, and the shared library (build/release, or
HOOKE_LIBRARY). --pack puts the library and what it needs beside the C library
into build/pack; on a machine that has only the repository and that folder the
benches take it from there. Writes build/bench/python.json.
"""

import argparse
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import ratios

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
PEER = os.path.join(HERE, "peer_python.py")
sys.path.insert(0, os.path.join(ROOT, "bindings", "python"))
PERIOD = 10
BATCH = {"mlp": 64, "resnet50": 128, "gpt2": 16}


class Served:
    """A center in a process of its own."""

    def __init__(self, address):
        self.child = subprocess.Popen(
            [sys.executable, PEER, "center", address], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        self.address = json.loads(self.child.stdout.readline())["address"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.stdin.close()
        self.child.wait(20)


# ---- another machine -----------------------------------------------------------

PACK = os.path.join(ROOT, "build", "pack")
SYSTEM = ("linux-vdso", "ld-linux", "libc.", "libm.", "libdl.", "libpthread.",
          "librt.")


def pack():
    """The library and what it is linked with, but for the system's own."""
    import shutil
    library = os.path.join(ROOT, "build", "release", "libhooke.so")
    os.makedirs(PACK, exist_ok=True)
    shutil.copy(library, PACK)
    listed = subprocess.run(["ldd", library], check=True, text=True,
                            capture_output=True).stdout
    for line in listed.splitlines():
        name, _, path = line.strip().partition(" => ")
        if path and not name.startswith(SYSTEM):
            shutil.copy(path.split(" ")[0], os.path.join(PACK, name))
    print("%s: %.1f MB" % (PACK, sum(
        os.path.getsize(os.path.join(PACK, f)) for f in os.listdir(PACK)) / 1e6))


def unpack():
    """Starts this program again with the packed library, where there is no
    other."""
    library = os.path.join(PACK, "libhooke.so")
    if (os.path.exists(library) and "HOOKE_LIBRARY" not in os.environ and not
            os.path.exists(os.path.join(ROOT, "build/release/libhooke.so"))):
        os.environ["HOOKE_LIBRARY"] = library
        os.environ["LD_LIBRARY_PATH"] = PACK
        os.execv(sys.executable, [sys.executable, *sys.argv])


# ---- what join costs ----------------------------------------------------------


class Side:
    """One of the two loops."""

    def __init__(self, name, device, address, options):
        import torch
        import python_models
        self.torch, self.device = torch, device
        self.model, self.loss = python_models.task(name, device, BATCH[name])
        self.opt = torch.optim.AdamW(self.model.parameters(), 1e-4, fused=True)
        self.worker = None
        if address is not None:
            import hooke.torch as hooke
            self.worker = hooke.join(self.model, self.opt, center=address,
                                     period=PERIOD, **options)

    def block(self, steps):
        """Seconds of so many steps."""
        begin = time.monotonic()
        for _ in range(steps):
            self.loss().backward()
            self.opt.step()
            self.opt.zero_grad()
        if self.device == "cuda":
            self.torch.cuda.synchronize()
        return time.monotonic() - begin


def overhead(name, device, scheme, rounds, options):
    with tempfile.TemporaryDirectory(prefix="hooke-") as folder, \
            Served(scheme.replace("FOLDER", folder)) as center:
        plain = Side(name, device, None, options)
        ours = Side(name, device, center.address, options)
        steps = 2 * PERIOD
        for side in plain, ours:
            side.block(steps)
        ours.worker.flush()
        before = ours.worker.stats()
        times = []
        for i in range(rounds):  # whoever begins, changes
            pair = [s.block(steps) for s in
                    ((plain, ours) if i % 2 else (ours, plain))]
            times.append(pair if i % 2 else pair[::-1])
        after = ours.worker.stats()
        ours.worker.leave()
    exchanges = max(after.exchanges - before.exchanges, 1)
    return {
        "model": name, "device": device, "address": scheme.split(":")[0],
        "options": options,
        "parameters": sum(p.numel() for p in plain.model.parameters()),
        "ratio": statistics.median(b / a for a, b in times),
        "step_ms": 1000 * statistics.median(a for a, _ in times) / steps,
        "exposed_ms": 1000 * (after.exposed_seconds - before.exposed_seconds)
                      / exchanges,
        "exchange_ms": 1000 * (after.exchange_seconds - before.exchange_seconds)
                       / exchanges,
        "bytes": (after.bytes_in + after.bytes_out - before.bytes_in
                  - before.bytes_out) / exchanges,
        "exchanges": exchanges,
    }


def print_overhead(r):
    print("%-9s %-5s %-5s %9d parameters %8.2f ms a step: with join %.3f of "
          "without; exchange %.1f ms, exposed %.2f ms, %.1f MB" % (
              r["model"], r["device"], r["address"], r["parameters"],
              r["step_ms"], r["ratio"], r["exchange_ms"], r["exposed_ms"],
              r["bytes"] / 1e6), r["options"] or "", flush=True)


# ---- against others -----------------------------------------------------------


def lines_of(child):
    out = []
    for line in child.communicate()[0].splitlines():
        try:
            out.append(json.loads(line))
        except ValueError:
            pass  # a library's own words
    return out


def sweep(child):
    """Processes that it has left behind: they hold its output open."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def together(system, where, floats, rounds, die=None):
    """Four processes; the last one dies after `die` rounds."""
    started = []
    for rank in range(4):
        args = [sys.executable, PEER, system, str(rank), "4", str(floats),
                str(rounds), where]
        if die is not None and rank == 3:
            args += ["--die", str(die)]
        started.append(subprocess.Popen(
            args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"}))
    limit = time.monotonic() + 240
    try:
        found = []
        for child in started:
            try:
                child.wait(max(limit - time.monotonic(), 1))
            except subprocess.TimeoutExpired:
                child.kill()
            sweep(child)
            found.append((child, lines_of(child)))
        return found
    finally:
        for child in started:
            sweep(child)


def one_peer(system, floats, rounds):
    with tempfile.TemporaryDirectory(prefix="hooke-") as folder:
        out = {"system": system, "floats": floats}
        for what, die in (("whole", None), ("killed", 2)):
            where = os.path.join(folder, what)
            if system == "hooke":
                with Served("127.0.0.1:0") as center:
                    found = together(system, center.address, floats, rounds, die)
            else:
                found = together(system, where, floats, rounds, die)
            lasting = found[:3] if die else found
            timed = [x for _, lines in lasting for x in lines if "seconds" in x]
            if die is None and not timed:
                raise SystemExit("%s: nobody got through a round" % system)
            if die is None:
                out["seconds"] = statistics.median(x["seconds"] for x in timed)
                out["exposed"] = statistics.median(x["exposed"] for x in timed)
                sums = [x["bytes"] / x["exchanges"] for _, lines in found
                        for x in lines if "bytes" in x]
                out["bytes"] = statistics.median(sums) if sums else None
            else:
                later = [x["seconds"] for x in timed if x["round"] >= die]
                out["survivors_ended_well"] = sum(
                    c.returncode == 0 for c, _ in lasting)
                out["seconds_after_kill"] = max(later) if later else None
        return out


def print_peer(r):
    after = ("%.2f s" % r["seconds_after_kill"] if r["seconds_after_kill"]
             else "none")
    print("%-9s %5.1f M floats, 4 workers: %.3f s an exchange, exposed %.3f s; "
          "after a kill -9: slowest exchange %s, %d of 3 others end well" % (
              r["system"], r["floats"] / 1e6, r["seconds"], r["exposed"], after,
              r["survivors_ended_well"]), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--part", default="overhead,peers")
    p.add_argument("--cuda", action="store_true")
    p.add_argument("--pack", action="store_true")
    p.add_argument("--models", default=None)
    p.add_argument("--rounds", type=int, default=None)
    p.add_argument("--address", default="unix:FOLDER/center")
    p.add_argument("--overlap", type=int, default=None)
    p.add_argument("--batch", type=int, default=None)
    p.add_argument("--floats", type=int, default=25_000_000)
    p.add_argument("--out", default=os.path.join(ROOT, "build/bench/python.json"))
    a = p.parse_args()
    if a.pack:
        return pack()
    unpack()
    import torch
    found, details = [], []
    device = "cuda" if a.cuda else "cpu"
    options = {} if a.overlap is None else {"overlap_steps": a.overlap}
    if a.cuda:
        a.part = "overhead"
    else:
        torch.set_num_threads(1)
    for name in (a.models or ("resnet50,gpt2" if a.cuda else "mlp")).split(","):
        if "overhead" in a.part.split(","):
            BATCH[name] = a.batch or BATCH[name]
            r = overhead(name, device, a.address, a.rounds or 100, options)
            print_overhead(r)
            details.append(r)
            found.append(ratios.lower("%s/%s" % (name, device), r["ratio"],
                                      "x plain loop"))
    if "peers" in a.part.split(","):
        systems = ["hooke", "gloo"]
        systems += [s for s in ("hivemind", "torchft")
                    if importlib.util.find_spec(s)]
        rows = {s: one_peer(s, a.floats, a.rounds or 5) for s in systems}
        for r in rows.values():
            print_peer(r)
            details.append(r)
        for s in systems[1:]:
            for what in "seconds", "exposed":
                found.append(ratios.higher(
                    "%s/%s" % (s, what), rows[s][what] / rows["hooke"][what],
                    "x " + s))
                print("%s: %.2f of %s" % (what, rows["hooke"][what]
                                          / rows[s][what], s))
    ratios.write(a.out, "python", found, details)


if __name__ == "__main__":
    main()
