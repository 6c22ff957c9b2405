#!/usr/bin/env python3
"""Checks Hooke on a graphics card and times it beside PyTorch's CUDA graphs.

    run_cuda.py [--part check,gradients,steps,ladder,kernels,loop,workers]
                [--cases mlp64,lenet512] [--precisions tf32,fp32,bf16] [--rounds N]
    run_cuda.py --pack              build/pack_cuda, for a machine with a card
    run_cuda.py --packed FOLDER     the same from such a folder
    run_cuda.py --played            small sizes, on a card that the host plays

check      every operator and every update on the card against the reference
gradients  of every network against PyTorch in double precision: the norm of the
           difference over the norm, beside PyTorch's own at that precision
steps      milliseconds per training step: Hooke and PyTorch take turns, round by
           round; a ratio is the median over rounds of peer / ours. `still`: the
           batch stays on the card, as in a replayed graph; `step`: it goes up in
           every step on both sides
ladder     time of each kernel by itself, beside what the card can do and PyTorch's
kernels    time of each kernel of a step, in their order
loop       the estimator's loop over the bare one
workers    seconds to 98.4 % on MNIST with one worker and with four on the card

One machine without a build: `--pack` takes the program, the plug-in, the benches, the tests
and the libraries they need, but for those of CUDA, which PyTorch has there, and MNIST
where --data has it. Writes build/bench/cuda.json. Exits 1 when a check or a kernel fails.
"""

import argparse
import glob
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.dirname(HERE)
ROOT = os.path.dirname(BENCH)
sys.path.append(BENCH)

import ladder
import ratios
import run_step

PACK = os.path.join(ROOT, "build", "pack_cuda")
ARCHIVE = "pack.tar.xz"
# What a case is to reach, by precision: (at least, aim); None: measured only.
CASES = {
    "mlp64": {"tf32": (1.6, 2.5), "fp32": (2.0, 2.5)}, "mlp128": {},
    "mlp1024": {"tf32": (1.7, 2.2), "fp32": (1.6, 2.2)},
    "lenet64": {"tf32": (1.5, 2.2)}, "lenet512": {"tf32": (1.3, 1.8)},
    "resnet20_128": {"tf32": (1.3, 1.7)}, "resnet20_1024": {"tf32": (1.2, 1.5)},
    "rec512": {"tf32": (2.0, 4.0), "fp32": (2.0, 4.0)},
    "rec8192": {"tf32": (2.0, 4.0), "fp32": (2.0, 4.0)},
}
PLAYED = ["mlp2", "lenet1", "resnet20_1", "rec2"]
PARTS = ["check", "gradients", "steps", "ladder", "kernels", "loop", "workers"]
# Limits of |ours - exact| / |exact|, or twice what PyTorch is off on the same GPU at
# the same precision. With products of e = 2^-11 (tf32) or 2^-9 (bf16) a share e of the
# ReLUs of the MLP and LeNet choose another linear piece, which moves a gradient by
# sqrt(e). ResNet-20 is compared on the linear piece that its own ReLUs chose, and
# smooth20 has no ReLU.
LIMIT_OF = {"fp32": 1e-5, "tf32": 2 * 2 ** -5.5, "bf16": 2 * 2 ** -4.5}
TIMES_PEER = 2
ROUND_MS = 200
LIMIT = 300   # seconds of a program that answers once
ANSWER = 120  # of one answer of the others
OVERHEAD = 1.05
PROGRAMS = {"hooke": "hooke", "test_cuda": "tests/test_cuda",
            "test_cuda_vectors": "tests/test_cuda_vectors",
            "test_cuda_elastic": "tests/test_cuda_elastic",
            "bench_cuda": "bench/bench_cuda",
            "bench_ladder": "bench/bench_ladder",
            "bench_estimator": "bench/bench_estimator"}
PLUGINS = ["libhooke_cuda.so", "tests/libhooke_cuda_played.so"]
SYSTEM = ("linux-vdso", "ld-linux", "libc.", "libm.", "libdl.", "libpthread.",
          "librt.", "libcuda", "libcublas", "libcudnn", "libnvidia")


# ---- programs, here or packed ----------------------------------------------------

def cuda_folders():
    """Where libcublasLt and libcudnn may be: CUDA's own, and PyTorch's."""
    found = ["/usr/local/cuda/lib64", "/usr/local/nvidia/lib64"]
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin:
        site = os.path.dirname(os.path.dirname(spec.origin))
        found += [os.path.join(site, "torch", "lib")]
        found += glob.glob(os.path.join(site, "nvidia", "*", "lib"))
    return [f for f in found if os.path.isdir(f)]


class Kit:
    """The programs, and the environment they run in."""

    def __init__(self, packed, built):
        self.packed, self.built = packed, built
        libraries = [packed] if packed else [os.path.join(built, "tests")]
        old = os.environ.get("LD_LIBRARY_PATH")
        self.env = {**os.environ, "LD_LIBRARY_PATH": ":".join(
            libraries + ([old] if old else []) + cuda_folders())}

    def path(self, name):
        return (os.path.join(self.packed, name) if self.packed
                else os.path.join(self.built, PROGRAMS[name]))

    def data(self, given):
        packed = os.path.join(self.packed or "", "data")
        return packed if self.packed and os.path.isdir(packed) else given

    def run(self, name, *words):
        try:
            return subprocess.run([self.path(name), *words], env=self.env,
                                  text=True, capture_output=True,
                                  timeout=LIMIT)
        except subprocess.TimeoutExpired as e:
            told = e.stdout.decode(errors="replace") if e.stdout else ""
            return subprocess.CompletedProcess(
                words, 124, told, "%s: not done after %d s" % (name, LIMIT))


def needed(path):
    """(name, file) of the libraries it is linked with, the system's left out."""
    listed = subprocess.run(["ldd", path], check=True, text=True,
                            capture_output=True).stdout
    for line in listed.splitlines():
        name, _, file = line.strip().partition(" => ")
        if file.startswith("/") and not name.startswith(SYSTEM):
            yield name, file.split(" ")[0]


def pack(data, built):
    shutil.rmtree(PACK, ignore_errors=True)
    os.makedirs(PACK)
    files = [os.path.join(built, p) for p in [*PROGRAMS.values(), *PLUGINS]]
    missing = [f for f in files if not os.path.exists(f)]
    if missing:
        sys.exit("not built: %s; make bench-cuda builds them" %
                 ", ".join(os.path.relpath(f, ROOT) for f in missing))
    for file in files:
        for name, library in needed(file):
            shutil.copy(library, os.path.join(PACK, name))
        shutil.copy(file, PACK)
    for file in os.listdir(PACK):
        subprocess.run(["strip", "--strip-unneeded", os.path.join(PACK, file)],
                       check=False, stderr=subprocess.DEVNULL)
    shutil.copytree(os.path.join(ROOT, "experiments"),
                    os.path.join(PACK, "experiments"))
    mnist = os.path.join(data, "mnist")
    if os.path.isdir(mnist):
        shutil.copytree(mnist, os.path.join(PACK, "data", "mnist"),
                        copy_function=shutil.copyfile)
    with tarfile.open(os.path.join(PACK, ARCHIVE), "w:xz", preset=2) as t:
        for name in sorted(os.listdir(PACK)):
            if name != ARCHIVE:
                t.add(os.path.join(PACK, name), name)
                remove(os.path.join(PACK, name))
    print("%s: %.1f MiB%s" % (
        PACK, os.path.getsize(os.path.join(PACK, ARCHIVE)) / 2 ** 20,
        "" if os.path.isdir(mnist) else ", without MNIST"))


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def unpack(folder):
    """Beside the archive; the folder with the programs."""
    inside = os.path.join(os.path.abspath(folder), "unpacked")
    shutil.rmtree(inside, ignore_errors=True)
    with tarfile.open(os.path.join(folder, ARCHIVE)) as t:
        t.extractall(inside)
    return inside


# ---- checks -----------------------------------------------------------------------

def check(o, kit):
    """Operators and vectors; on the card only where there is one."""
    good = True
    for name in "test_cuda_vectors", "test_cuda_elastic", "test_cuda":
        only = ["card_*"] if name == "test_cuda" and not o.played else []
        done = kit.run(name, *only)
        text = done.stdout + done.stderr
        told = [x for x in text.splitlines() if x.startswith("[  ")]
        print("\n".join([name] + told), flush=True)
        if done.returncode != 0:
            print(text[-3000:], flush=True)
        good = good and done.returncode == 0 and (o.played or not any(
            "SKIPPED" in x for x in told))
    return {"ok": good}


def gradients(o, kit):
    """Of one step of each network, against PyTorch in double precision."""
    rows = []
    cases = first_of_each(o.cases)
    cases += [c.replace("resnet20", "smooth20") for c in cases if "resnet20" in c]
    for case in cases:
        for precision in o.precisions:
            with tempfile.TemporaryDirectory() as folder:
                row = one_gradient(o, kit, case, precision,
                                   os.path.join(folder, "step.bin"))
            rows.append({"case": case, "precision": precision, **row})
            print("gradients %-14s %s  %s" % (case, precision, row["text"]),
                  flush=True)
    return rows


def one_gradient(o, kit, case, precision, path):
    made = kit.run("bench_cuda", o.backend, "dump", case, precision, path)
    if made.returncode != 0:
        return {"ok": False, "text": reason(made)}
    peer = subprocess.run([o.python, os.path.join(HERE, "peer_cuda.py"), "check",
                           case, precision, path], capture_output=True,
                          text=True)
    if peer.returncode != 0:
        return {"ok": None, "text": "no peer: " + reason(peer)}
    row = judge(peer.stdout.splitlines(), precision)
    row["text"] += "".join("\n    " + x for x in peer.stderr.splitlines()
                           if "ReLU" in x)
    return row


def judge(lines, precision):
    """Of the lines `tensor error peer_error` the one that is nearest to its
    limit, or beyond. PyTorch's own error is that of the tensor, or the median
    over the tensors of this network where that is larger."""
    found = [line.split() for line in lines]
    for fields, line in zip(found, lines):
        if len(fields) != 3:
            return {"ok": False, "text": line + "  FAILED"}
    if not found:
        return {"ok": False, "text": "nothing compared  FAILED"}
    usual = statistics.median(float(own) for _, _, own in found)
    rows = []
    for name, error, own in found:
        limit = max(LIMIT_OF[precision],
                    TIMES_PEER * max(float(own), usual))
        rows.append({"tensor": name, "error": float(error), "own": float(own),
                     "limit": limit, "ok": float(error) <= limit})
    worst = max(rows, key=lambda r: (not r["ok"], r["error"] / r["limit"]))
    return {"ok": worst["ok"], "tensors": rows, "text":
            "%d tensors, nearest to its limit %.2g of %.2g in %s, PyTorch %.2g%s"
            % (len(rows), worst["error"], worst["limit"], worst["tensor"],
               worst["own"], "" if worst["ok"] else "  FAILED")}


def reason(done):
    lines = (done.stderr or done.stdout or "").strip().splitlines()
    return lines[-1] if lines else "ended with %d" % done.returncode


# ---- times ------------------------------------------------------------------------

class Program:
    """A child process that answers `loop case precision iters`; started again
    when it has ended over a case."""

    def __init__(self, command, env):
        self.command, self.env, self.child = command, env, None

    def ask(self, line):
        """(answer, None) or (None, reason)."""
        if self.child is None:
            self.child = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, env=self.env)
        late = threading.Timer(ANSWER, self.child.kill)
        late.start()
        try:
            self.child.stdin.write(line + "\n")
            self.child.stdin.flush()
            answer = self.child.stdout.readline().strip()
        except BrokenPipeError:
            answer = ""
        finally:
            late.cancel()
        if answer and not answer.startswith("error"):
            return answer, None
        if answer:
            return None, answer
        told = self.child.stderr.read().strip().splitlines()
        self.child.wait()
        self.child = None
        return None, told[-1] if told else "ended, or took %d s" % ANSWER

    def close(self):
        if self.child is not None:
            self.child.stdin.close()
            self.child.wait()
            self.child.stderr.close()


def peer_program(o, name):
    return Program([o.python, os.path.join(HERE, name)], os.environ)


def ways(case):
    """(name, side, loop, case) of what is timed; of a peer's ways the fastest
    counts."""
    out = [("ours still", "ours", "still", case),
           ("ours step", "ours", "step", case),
           ("ours launch", "ours", "launch", case),
           ("peer still", "peer", "still", case),
           ("peer step", "peer", "step", case)]
    if case.startswith("lenet"):  # either layout of its images
        out += [("peer still cl", "peer", "still", case + "_cl"),
                ("peer step cl", "peer", "step", case + "_cl")]
    if case.startswith("rec"):
        out += [("peer still eager", "peer", "eager", case)]
    return out


def time_case(o, sides, case, precision):
    """{way: [ms]} over the rounds, and why a way is missing."""
    iters, out, why = {}, {}, {}
    left = ways(case)
    for name, side, loop, of in left:
        line = "%s %s %s " % (loop, of, precision)
        answer, wrong = sides[side].ask(line + "2")
        if not wrong:
            answer, wrong = sides[side].ask(line + ("1" if o.played else "20"))
        if wrong:
            why[name] = wrong
            continue
        iters[name] = max(1, int(o.round_ms / max(float(answer), 1e-4)))
        out[name] = []
    left = [w for w in left if w[0] in out]
    for _ in range(o.rounds if left else 0):
        for name, side, loop, of in left:
            answer, wrong = sides[side].ask("%s %s %s %d" % (
                loop, of, precision, iters[name]))
            if wrong:
                why[name] = wrong
            else:
                out[name].append(float(answer))
        left.append(left.pop(0))
    return {k: v for k, v in out.items() if v}, why


def best(times, start):
    """The way of a side whose median is least."""
    found = [k for k in times if k.startswith(start)]
    return min(found, key=lambda k: statistics.median(times[k]), default=None)


def steps(o, kit):
    sides = {"ours": Program([kit.path("bench_cuda"), o.backend, "serve"],
                             kit.env),
             "peer": peer_program(o, "peer_cuda.py")}
    info, wrong = sides["peer"].ask("info")
    print("peer: %s" % (info or wrong))
    rows = []
    for precision in o.precisions:
        for case in o.cases:
            times, why = time_case(o, sides, case, precision)
            if not times:
                sys.exit("bench-cuda: %s" % next(iter(why.values())))
            row = {"case": case, "precision": precision, "why": why,
                   "us": {k: 1e3 * statistics.median(v)
                          for k, v in times.items()}}
            for way in "still", "step":
                ours, peer = "ours " + way, best(times, "peer " + way)
                row["peer " + way] = peer
                if ours in times and peer:
                    row[way] = run_step.ratio(times[peer], times[ours])
            row["target"] = CASES.get(case, {}).get(precision)
            rows.append(row)
            print_row(row)
    for side in sides.values():
        side.close()
    return info, rows


def cell(value, form):
    return form % value if value is not None else "-"


def print_row(r):
    us = r["us"]
    target = r["target"]
    note = ""
    if target and r.get("still") is not None:
        note = "  at least %.1f, aim %.1f%s" % (*target, "" if r["still"] >=
                                                target[0] else "  below")
    print("%-14s %s  ours %9s us (batch goes up %9s, launch %9s)  peer %9s us "
          "(%9s)  ratio %6s (%6s)%s" % (
              r["case"], r["precision"], cell(us.get("ours still"), "%.1f"),
              cell(us.get("ours step"), "%.1f"),
              cell(us.get("ours launch"), "%.1f"),
              cell(us.get(r.get("peer still")), "%.1f"),
              cell(us.get(r.get("peer step")), "%.1f"),
              cell(r.get("still"), "%.2f"), cell(r.get("step"), "%.2f"), note))
    for text in sorted(set(r["why"].values())):
        print("    %s: %s" % (", ".join(k for k, v in r["why"].items()
                                        if v == text), text))
    sys.stdout.flush()


def first_of_each(cases):
    """The first case of each network."""
    found = {}
    for case in cases:
        found.setdefault(case.rstrip("0123456789"), case)
    return list(found.values())


def kernels(o, kit):
    """One precision and one batch of each network say enough."""
    texts = {}
    for case in first_of_each(o.cases):
        found = ladder.rungs(kit.run(
            "bench_ladder", o.backend, "steps", case, o.precisions[0],
            "0.001" if o.played else "20"))
        lines = ["%9s us  %-36s %-30s %s" % (
            cell(r["us"], "%.2f"), r["name"], r["out"], r["note"] or r["why"])
                 for r in found]
        lines.append("%9.2f us  %d kernels of %s" % (
            sum(r["us"] or 0 for r in found), len(found), case))
        texts[case] = "\n".join(lines)
        print("kernels of %s, %s\n%s" % (case, o.precisions[0], texts[case]),
              flush=True)
    return texts


# ---- loops ------------------------------------------------------------------------

def loop(o, kit):
    """The estimator with checkpoints, summaries and a hook over a loop written
    by hand, both on the card, in turns."""
    program = Program([kit.path("bench_estimator"), "serve", o.device], kit.env)
    count = 2 if o.played else 2000
    times = {"bare": [], "full": []}
    for i in range(o.rounds + 1):
        for what in ("bare", "full") if i % 2 else ("full", "bare"):
            answer, wrong = program.ask("%s %d" % (what, count))
            if wrong:
                print("loop: " + wrong)
                return None
            times[what].append(float(answer.split()[0]))
    program.close()
    bare, full = times["bare"][1:], times["full"][1:]
    ratio = run_step.ratio(full, bare)
    print("loop: bare %.1f us a step, estimator %.1f, ratio %.3f (target %.2f)%s"
          % (1e3 * statistics.median(bare), 1e3 * statistics.median(full), ratio,
             OVERHEAD, "" if ratio <= OVERHEAD else "  above"), flush=True)
    return ratio


def workers(o, kit):
    """Seconds to 98.4 % on MNIST as it is shipped, on one card."""
    import problems
    data = kit.data(o.data)
    if not os.path.isdir(os.path.join(data, "mnist")):
        print("workers: no MNIST in %s" % data)
        return None
    os.environ["LD_LIBRARY_PATH"] = kit.env["LD_LIBRARY_PATH"]
    problem = problems.PROBLEMS["mnist"]
    experiment = os.path.join(kit.packed or ROOT, "experiments",
                              problem.experiment + ".yaml")
    problem = problem._replace(experiment=experiment)
    found = {}
    for n in (1, 4):
        times = []
        for seed in range(1, (1 if o.played else 5) + 1):
            line = problem.train(
                kit.path("hooke"), data, n, seed, limit=2 if o.played else 30,
                more={"run.steps": 10 ** 7, "run.device": o.device})
            times.append(problems.reached(line, "seconds"))
            if "error" in line:
                print("workers: " + line["error"].strip())
                return None
        good = [t for t in times if t is not None]
        found[n] = statistics.median(good) if len(good) * 2 > len(times) else None
        print("workers: %d on %s, 98.4 %% on MNIST after %s s (%d of %d reached "
              "it)" % (n, o.device, cell(found[n], "%.2f"), len(good),
                       len(times)), flush=True)
    return found[1] / found[4] if found[1] and found[4] else None


# ---- all of it --------------------------------------------------------------------

def figures(info, rows, overhead, sooner):
    unit = ratios.peer_unit(info) + ", CUDA graph"
    out = [ratios.higher("%s/%s%s" % (r["case"], r["precision"], more),
                         r.get(loop_name), unit)
           for r in rows for loop_name, more in (("still", ""),
                                                 ("step", "/batch_goes_up"))]
    out.append(ratios.lower("loop", overhead, "of a bare loop's time"))
    out.append(ratios.higher("workers", sooner, "x one worker's time"))
    return out


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--part", default=",".join(PARTS))
    p.add_argument("--cases", default=None)
    p.add_argument("--precisions", default=None)
    p.add_argument("--rounds", type=int, default=None)
    p.add_argument("--pack", action="store_true")
    p.add_argument("--packed")
    p.add_argument("--played", action="store_true")
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--data", default=os.path.join(ROOT, "..", "shared", "data"))
    p.add_argument("--release", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--out", default=os.path.join(ROOT, "build", "bench",
                                                 "cuda.json"))
    o = p.parse_args()
    o.chosen = o.cases.split(",") if o.cases else None
    o.cases = o.chosen or (PLAYED if o.played else list(CASES))
    o.precisions = (o.precisions or ("fp32" if o.played else
                                     "tf32,fp32")).split(",")
    o.rounds = o.rounds or (1 if o.played else 9)
    o.round_ms = 1 if o.played else ROUND_MS
    o.backend = "cuda-played" if o.played else "cuda"
    o.device = "cuda-played" if o.played else "cuda:0"
    o.part = o.part.split(",")
    for part in o.part:
        if part not in PARTS:
            p.error("no part %s (known: %s)" % (part, ", ".join(PARTS)))
    return o


def main():
    o = options()
    if o.pack:
        return pack(o.data, o.release)
    kit = Kit(unpack(o.packed) if o.packed else None, o.release)
    told = kit.run("hooke", "version")
    print(told.stdout or told.stderr, flush=True)
    checked = check(o, kit) if "check" in o.part else {"ok": True}
    compared = gradients(o, kit) if "gradients" in o.part else []
    info, rows = steps(o, kit) if "steps" in o.part else (None, [])
    climbed = ladder.run(o, kit, peer_program(o, "peer_ladder.py")) \
        if "ladder" in o.part else {}
    texts = kernels(o, kit) if "kernels" in o.part else {}
    overhead = loop(o, kit) if "loop" in o.part else None
    sooner = workers(o, kit) if "workers" in o.part else None
    if sooner:
        print("workers: four are there %.2f times as soon as one" % sooner)
    ratios.write(o.out, "cuda", figures(info, rows, overhead, sooner), {
        "check": checked, "gradients": compared, "steps": rows,
        "ladder": climbed, "kernels": texts, "peer": info, "played": o.played})
    print("written to %s" % os.path.relpath(o.out))
    wrong = [r for r in compared if r["ok"] is False] + ladder.failed(climbed)
    return 0 if checked["ok"] and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
