#!/usr/bin/env python3
"""Checks bench/compare.py on made-up results, and the figures of docs/bench.json.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMPARE = ROOT / "bench" / "compare.py"
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
import ratios  # noqa: E402

# What the second run finds where the first found 2.0: (better, ratio, unit),
# and whether that fell by more than 10 %.
CASES = [
    ("higher", 2.0, "x", False),
    ("higher", 1.81, "x", False),
    ("higher", 1.79, "x", True),
    ("higher", 3.0, "x", False),
    ("lower", 2.0, "x", False),
    ("lower", 2.2, "x", False),
    ("lower", 2.3, "x", True),
    ("lower", 1.0, "x", False),
    ("higher", 0.1, "x torch 9.9", False),  # not of the same
]


def call(folder, *words):
    done = subprocess.run(
        [sys.executable, "-B", COMPARE, "--kept", folder / "kept.json", *words],
        capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def write_run(folder, name, machine, found):
    path = folder / name
    ratios.write(path, "made_up", found, None)
    run = json.loads(path.read_text())
    run["machine"] = machine
    path.write_text(json.dumps(run))
    return path


def figure(better, ratio, unit):
    return {"case": "c", "ratio": ratio, "unit": unit, "better": better}


def check_compare(folder):
    """What compare says of every case, and of a machine that it has not seen."""
    for better, ratio, unit, fell in CASES:
        first = write_run(folder, "1.json", "here", [figure(better, 2.0, "x")])
        second = write_run(folder, "2.json", "here",
                           [figure(better, ratio, unit)])
        call(folder, "record", first)
        code, text = call(folder, "compare", second)
        wanted = 1 if fell else 0 if unit == "x" else 2
        if code != wanted or ("worse" in text) != fell:
            yield f"{better} {ratio} {unit}: exit code {code}: {text}"
    other = write_run(folder, "3.json", "there", [figure("higher", 2.0, "x")])
    if call(folder, "compare", other)[0] != 2:
        yield "a machine of which nothing is kept"
    if call(folder, "compare", "--machine", "here", other)[0] != 0:
        yield "--machine"


def check_record(folder):
    """Recording replaces what was run and keeps the rest."""
    (folder / "kept.json").unlink()
    both = [dict(figure("lower", 2.0, "ms"), case=c) for c in ("a", "b")]
    call(folder, "record", write_run(folder, "1.json", "here", both))
    one = [dict(both[0], ratio=3.0), dict(both[0], case="none", ratio=None)]
    call(folder, "record", write_run(folder, "2.json", "here", one))
    kept = json.loads((folder / "kept.json").read_text())
    found = {k: v["ratio"] for k, v in kept.get("here", {}).items()}
    if found != {"made_up/a": 3.0, "made_up/b": 2.0}:
        yield f"record kept {found}"


def check_machine():
    facts = {"vendor_id": "GenuineIntel", "flags": "sse avx2 avx512f",
             "model name": "Intel(R) Xeon(R) Processor @ 2.70GHz"}
    if ratios.machine(facts, 2) != "2 cores, Intel Xeon, AVX-512":
        yield ratios.machine(facts, 2)
    if ratios.machine({}, 4) != "4 cores":
        yield ratios.machine({}, 4)
    if ratios.peer_unit("torch 1.13.1, threads 2") != "x torch 1.13":
        yield ratios.peer_unit("torch 1.13.1, threads 2")


def check_kept():
    """Every figure of docs/bench.json has what compare needs."""
    kept = json.loads((ROOT / "docs" / "bench.json").read_text())
    for machine, cases in kept.items():
        for case, f in cases.items():
            if not (f["ratio"] > 0 and f["better"] in ("higher", "lower") and
                    f["unit"] and f["date"] and "load" in f and
                    (ROOT / f["command"].split()[0]).exists()):
                yield f"docs/bench.json: {machine}: {case}"


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        faults = [*check_compare(folder), *check_record(folder),
                  *check_machine(), *check_kept()]
    for fault in faults:
        print("FAILED " + fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
