"""Training input end to end against tf.data and PyTorch, by workers.

    run_input.py [--rounds N] [--bin-dir DIR] [--tf-python PROGRAM]
                 [--torch-python PROGRAM] [--formats a,b] [--out FILE]

Makes a CSV, a TFRecord and an IDX file, then runs bench_input.c and
peer_input.py over them with 1 and with 4 workers, each a process that has its
part of an epoch, one after the other: the sides take turns. `ratio` is the
median over rounds of a peer's processor seconds an example through Hooke's, so
per core; `read` are the bytes that all workers of a side have read in an epoch,
as a multiple of the file. Every side has to come to the same examples and the
same sum of classes. A side that is not there is left out. Writes
build/bench/input.json and prints a table; exits 0 whatever the ratios are.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
EPOCHS = 3
TARGET = 3.0
ROWS = {"csv": 200000, "tfrecord": 60000, "idx": 60000}


def has(python, module):
    try:
        return subprocess.run([python, "-c", "import " + module],
                              capture_output=True).returncode == 0
    except OSError:
        return False


def sides(args):
    """Command lines by name; ours first."""
    peer = os.path.join(HERE, "peer_input.py")
    found = {"hooke": [os.path.join(args.bin_dir, "bench_input")]}
    for name, python, module in (("tf", args.tf_python, "tensorflow"),
                                 ("torch", args.torch_python, "torch")):
        if has(python, module):
            found[name] = [python, peer, "--side", name]
        else:
            print("%s has no %s, left out" % (python, module),
                  file=sys.stderr)
    return found


def run(command, files, workers):
    """One epoch loop of all workers: seconds an example, bytes, (n, sum)."""
    seconds = read = n = total = 0
    for worker in range(workers):
        line = command + files + ["--workers", str(workers), "--worker",
                                  str(worker), "--epochs", str(EPOCHS)]
        out = json.loads(subprocess.run(line, check=True, text=True,
                                        stdout=subprocess.PIPE).stdout)
        seconds += out["seconds"]
        read += out["bytes"]
        n += out["examples"]
        total += out["sum"]
    return seconds / n, read / EPOCHS, (n, total)


def measure(found, fmt, files, size, workers, rounds):
    runs = {name: [] for name in found}
    for _ in range(rounds):
        for name, command in found.items():
            runs[name].append(run(command, files, workers))
    if len({r[2] for each in runs.values() for r in each}) != 1:
        sys.exit("%s: the sides have not seen the same examples" % fmt)
    ours = runs["hooke"]
    for name, each in runs.items():
        ratio = statistics.median(b[0] / a[0] for a, b in zip(ours, each))
        yield {"case": "%s_%d_%s" % (fmt, workers, name),
               "us_an_example": round(1e6 * min(r[0] for r in each), 3),
               "ratio": round(ratio, 2),
               "read": round(each[-1][1] / size, 2),
               "below": name != "hooke" and ratio < TARGET}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bin-dir", default=os.path.join(
        ROOT, "build", "release", "bench"))
    parser.add_argument("--tf-python", default=os.path.join(
        ROOT, "build", "tfvenv", "bin", "python"))
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--formats", default=",".join(ROWS))
    parser.add_argument("--out", default=os.path.join(
        ROOT, "build", "bench", "input.json"))
    args = parser.parse_args()
    found = sides(args)
    results = []
    print("%-18s %14s %8s %6s" % ("case", "us an example", "ratio", "read"))
    with tempfile.TemporaryDirectory() as folder:
        for fmt in args.formats.split(","):
            path = os.path.join(folder, fmt)
            files = ["--file", path, "--labels", path + "-labels"]
            subprocess.run(found["hooke"] + ["--make", fmt, "--rows",
                                             str(ROWS[fmt])] + files,
                           check=True)
            for workers in (1, 4):
                for r in measure(found, fmt, ["--format", fmt] + files,
                                 os.path.getsize(path), workers, args.rounds):
                    results.append(r)
                    print("%-18s %14.3f %8.2f %6.2f%s" % (
                        r["case"], r["us_an_example"], r["ratio"], r["read"],
                        "  below" if r["below"] else ""), flush=True)
    os.makedirs(os.path.dirname(args.out), exist_ok=True)
    with open(args.out, "w", encoding="utf-8") as f:
        json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
