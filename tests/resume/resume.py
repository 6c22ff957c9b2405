#!/usr/bin/env python3
"""Runs that are interrupted and go on, against the same runs left alone.

    resume.py HOOKE [--runs N] [--seed S] [--case NAME]... [--short]
              [--keep DIR]

Each run gets SIGINT or SIGTERM at random moments, is started again by the same
command, and at the end its last checkpoint must hold the bits of the
uninterrupted run: values, averages, slots, counters, and how far each worker
was in its data. Workers that run freely differ in every run; those must go on
and end at the same step. The seed is printed; the moments follow from it, what
happens at them depends on the machine.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from io import BytesIO

STOPPED = {signal.SIGINT: 130, signal.SIGTERM: 143}

# ---- data --------------------------------------------------------------------


def write_table(count):
    """Three kinds of points in a plane, with a word and a number that help."""
    words = ["north", "south", "west"]
    with open("points.csv", "w", encoding="utf-8") as out:
        out.write("x,y,word,kind\n")
        for _ in range(count):
            kind = random.randrange(3)
            word = words[kind] if random.random() < 0.6 else random.choice(words)
            x, y = random.gauss(kind, 0.8), random.gauss(-kind, 0.8)
            out.write(f"{x:.4f},{y:.4f},{word},{kind}\n")


def png(rows):
    """A grey picture of 8 bits."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data +
                struct.pack(">I", zlib.crc32(kind + data)))
    raw = b"".join(b"\0" + bytes(row) for row in rows)
    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) +
            chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def picture(kind):
    """8 x 8: a bright bar at a place of its own."""
    return [[min(255, random.randrange(120) + (150 if x // 2 == kind else 0))
             for x in range(8)] for _ in range(8)]


def write_shards(shards, count):
    for s in range(shards):
        with tarfile.open(f"bars-{s}.tar", "w") as out:
            for i in range(count):
                kind = random.randrange(4)
                for ending, data in (("png", png(picture(kind))),
                                     ("cls", str(kind).encode())):
                    member = tarfile.TarInfo(f"{s:02}{i:05}.{ending}")
                    member.size = len(data)
                    out.addfile(member, BytesIO(data))


def write_experiment(name, model, data, run="{}"):
    with open(f"{name}.yaml", "w", encoding="utf-8") as out:
        out.write(f"""model: {model}
optimizer: {{type: adam, learning_rate: 0.01, clip_norm: 5,
            schedule: {{type: cosine, decay_steps: 4000}}}}
elastic: {{communication_period: 5}}
ema: {{decay: 0.9}}
data:
  holdout: 0.05
  train: {data}
run: {run}
""")


def write_data(hooke):
    random.seed(1)
    write_table(1500)
    write_shards(2, 150)
    subprocess.run([hooke, "convert", "points.csv", "points.tfrecord"],
                   check=True, stdout=subprocess.DEVNULL)
    table = "{canned: dnn, hidden: [32, 16], dropout: 0.2}"
    layers = ("{layers: [flatten, {dense: {units: 64, activation: relu}}, "
              "{dropout: 0.2}, {dense: 4}]}")
    write_experiment("csv", table, "{source: csv, files: points.csv, "
                     "label: kind, batch: 16, shuffle: 300}")
    write_experiment("tfrecord", table, "{source: tfrecord, "
                     "files: points.tfrecord, label: kind, batch: 16, "
                     "shuffle: 300, columns: {x: float, y: float, word: text, "
                     "kind: int}}")
    write_experiment("tar", layers, "{source: tar, files: bars-*.tar, "
                     "size: 8, batch: 16, shuffle: 100, "
                     "augment: {pad: 1, crop: 8, flip: true}}")


# ---- cases -------------------------------------------------------------------

ONE = []
IN_TURN = ["--workers", "4", "--set", "elastic.order=round_robin"]
FREE = ["--workers", "4"]
DIGITS = ["digits", "--set", "data.train.count=2000", "--set",
          "data.eval.count=50"]
SAVES = ["--set", "run.save_steps=70"]
EVALUATES = ["--set", "run.eval_steps=60"]

CASES = {
    "digits": [*DIGITS, "--steps", "600", *ONE],
    "digits, 4 in turn": [*DIGITS, "--steps", "150", *IN_TURN],
    "digits, 4 free": [*DIGITS, "--steps", "150", *FREE],
    "csv": ["csv.yaml", "--steps", "2500", *EVALUATES],
    "csv, epochs": ["csv.yaml", "--epochs", "20", *SAVES],
    "csv, 4 in turn": ["csv.yaml", "--steps", "503", *IN_TURN, *SAVES],
    "csv, 4 in turn, epochs": ["csv.yaml", "--epochs", "20", *IN_TURN],
    "csv, 4 free, epochs": ["csv.yaml", "--epochs", "20", *FREE],
    "csv, 4 in rounds": ["csv.yaml", "--steps", "500", *IN_TURN, "--set",
                         "elastic.method=model_average"],
    "tfrecord": ["tfrecord.yaml", "--steps", "2500", *SAVES],
    "tfrecord, 4 in turn": ["tfrecord.yaml", "--steps", "500", *IN_TURN,
                            *EVALUATES],
    "tar": ["tar.yaml", "--steps", "800"],
    "tar, epochs": ["tar.yaml", "--epochs", "30", *SAVES],
    "tar, 4 in turn": ["tar.yaml", "--steps", "200", *IN_TURN],
}

# One of each kind, and none of the long ones.
SHORT = ["csv, epochs", "csv, 4 in turn, epochs", "csv, 4 free, epochs",
         "csv, 4 in rounds", "tfrecord, 4 in turn", "tar", "digits, 4 in turn"]

# ---- checkpoints -------------------------------------------------------------


def last_checkpoint(folder):
    """Its step, and its tensors as bytes."""
    steps = [int(m.group(1)) for m in
             (re.fullmatch(r"model\.ckpt-(\d+)\.safetensors", name)
              for name in os.listdir(folder)) if m]
    with open(f"{folder}/model.ckpt-{max(steps)}.safetensors", "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        head, body = json.loads(f.read(size)), f.read()
    head.pop("__metadata__", None)
    tensors = {name: body[slice(*about["data_offsets"])]
               for name, about in head.items()}
    # What was read ahead at the end is a matter of time; how much was used is
    # not.
    for name in tensors:
        if "/data/" in name:
            tensors[name] = tensors[name][16:24]
    return max(steps), tensors


def difference(name, want, got):
    """What is wrong with a run that has gone on, or None."""
    if want[0] != got[0]:
        return f"ended at step {got[0]}, not {want[0]}"
    if "free" in name:
        return None
    # One that is asked to stop at its very last step saves it before its
    # workers have left the center; what only those that are in it have differs.
    left = {key.rsplit("/", 1)[0] + "/" for key in want[1].keys() & got[1].keys()
            if key.endswith("/joined") and want[1][key] != got[1][key]}
    for key in sorted(want[1].keys() | got[1].keys()):
        at_end = any(key.startswith(worker) for worker in left)
        if at_end and key.endswith("/joined"):
            continue
        if key not in got[1] or key not in want[1]:
            if at_end or "/data/" in key:
                continue
            return f"{key} is in one of the checkpoints only"
        if want[1][key] != got[1][key]:
            return f"{key} has other bits"
    return None


# ---- runs --------------------------------------------------------------------


def start(hooke, arguments, folder):
    # A shell may have given us an ignored SIGINT for our children.
    return subprocess.Popen(
        [hooke, "train", *arguments, "--model-dir", folder, "-q"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def finish(process):
    _, errors = process.communicate(timeout=600)
    return process.returncode, errors.decode(errors="replace").strip()


def has_begun(process, folder):
    """Waits for the first checkpoint, which comes before the first step."""
    while process.poll() is None:
        if os.path.exists(f"{folder}/checkpoint"):
            return
        time.sleep(0.002)


def interrupt(process, moment, number):
    """Sends the signal then, unless the run is over earlier."""
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        process.send_signal(number)


def one_run(hooke, name, folder, seconds, times):
    """Interrupts a run once or more and lets it end. What was done, and what
    went wrong."""
    done = []
    for _ in range(times):
        number = random.choice(list(STOPPED))
        moment = random.uniform(0, seconds)
        process = start(hooke, CASES[name], folder)
        if random.random() < 0.8: # the rest hits the start, too
            has_begun(process, folder)
        interrupt(process, moment, number)
        code, errors = finish(process)
        done.append(f"{number.name} {moment:.3f} s: {code}")
        # A signal before there is a handler is the end, too.
        if code not in (0, STOPPED[number], -number):
            return done, f"exit code {code} after {number.name}: {errors}"
    code, errors = finish(start(hooke, CASES[name], folder))
    done.append(f"went on: {code}")
    return done, f"exit code {code}: {errors}" if code else None


def reference(hooke, name):
    folder = f"reference-{list(CASES).index(name)}"
    process = start(hooke, CASES[name], folder)
    has_begun(process, folder)
    begin = time.monotonic()
    code, errors = finish(process)
    if code:
        sys.exit(f"{name}: exit code {code}: {errors}")
    return last_checkpoint(folder), time.monotonic() - begin


def run_all(o):
    names = o.case or (SHORT if o.short else list(CASES))
    known = {}
    failures = 0
    for i in range(o.runs):
        name = names[i % len(names)]
        if name not in known:
            known[name] = reference(o.hooke, name)
        want, seconds = known[name]
        folder = f"run-{i}"
        times = 2 if o.short else random.choice([1, 1, 2, 3])
        done, wrong = one_run(o.hooke, name, folder, seconds, times)
        if wrong is None:
            wrong = difference(name, want, last_checkpoint(folder))
        if wrong is None:
            shutil.rmtree(folder)
        else:
            failures += 1
        if wrong is not None or o.verbose:
            print(f"run {i}, {name}: {'; '.join(done)}; {wrong or 'equal'}",
                  flush=True)
    return failures


def main():
    p = argparse.ArgumentParser()
    p.add_argument("hooke")
    p.add_argument("--runs", type=int, default=200)
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--case", action="append", choices=list(CASES))
    p.add_argument("--short", action="store_true",
                   help="a few cases, two interruptions a run")
    p.add_argument("--keep", help="folder for data and failed runs")
    p.add_argument("--verbose", action="store_true")
    o = p.parse_args()
    o.hooke = os.path.abspath(o.hooke)
    seed = o.seed if o.seed is not None else random.randrange(1 << 32)
    place = o.keep or tempfile.mkdtemp(prefix="hooke-resume-")
    os.makedirs(place, exist_ok=True)
    os.chdir(place)
    write_data(o.hooke)
    random.seed(seed)
    print(f"seed {seed}: {o.runs} runs in {place}", flush=True)
    failures = run_all(o)
    print(f"{o.runs - failures} of {o.runs} runs went on as if nothing had "
          f"happened, seed {seed}")
    if not o.keep and not failures:
        shutil.rmtree(place)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
