#!/usr/bin/env python3
"""A trainer's wait for data over a link of limited rate.

    run_remote.py [--rate MB/s] [--load SHARE] [--size MB] [--bench PROGRAM]

nginx on this machine sends CSV and TFRecord files by https, with limit_rate so
that the four connections of a reader have --rate together. The trainer's steps
are as long as makes it need --load of that. Prints the share of its time that
it waits, and beside it the same from a file of this machine. Needs nginx and
openssl.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/remote"))
sys.dont_write_bytecode = True
import servers  # noqa: E402

CONNECTIONS = 4  # of src/fetch/remote/read_ahead.c


def make_files(folder, size):
    """rows.csv and rows.tfrecord of about `size` bytes; bytes of a batch."""
    draw = random.Random(1)
    block = "".join(",".join(f"{draw.random():.6f}" for _ in range(40)) + "\n"
                    for _ in range(1000))
    with open(folder / "rows.csv", "w") as f:
        f.write(",".join(f"x{i}" for i in range(40)) + "\n")
        for _ in range(max(1, size // len(block))):
            f.write(block)
    subprocess.run([ROOT / "build/release/hooke", "convert",
                    folder / "rows.csv", folder / "rows.tfrecord"],
                   check=True, stdout=subprocess.DEVNULL)
    rows = 1000 * max(1, size // len(block))
    return {kind: (folder / f"rows.{kind}").stat().st_size / rows * 64
            for kind in ("csv", "tfrecord")}


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("--rate", type=float, default=16)
    parse.add_argument("--load", type=float, default=0.5)
    parse.add_argument("--size", type=float, default=50)
    parse.add_argument("--bench",
                       default=ROOT / "build/release/bench/bench_remote")
    a = parse.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        root = folder / "www"
        root.mkdir()
        batches = make_files(root, int(a.size * 1e6))
        rate = f"{int(a.rate * 1e6 / CONNECTIONS / 1024)}k"
        nginx = servers.Nginx(folder / "nginx", root, rate)
        os.environ["CURL_CA_BUNDLE"] = str(nginx.cert)
        try:
            for kind, batch in batches.items():
                step_ms = batch / (a.load * a.rate * 1e6) * 1e3
                for where, path in (("file", root / f"rows.{kind}"),
                                    ("https", nginx.url(f"slow/rows.{kind}"))):
                    out = subprocess.run(
                        [a.bench, kind, path, f"{step_ms:.4f}"], check=True,
                        stdout=subprocess.PIPE).stdout
                    r = json.loads(out)
                    print(f"{kind:9} {where:6} {r['bytes'] / 1e6:7.1f} MB in "
                          f"{r['seconds']:6.2f} s, step {step_ms:.2f} ms, "
                          f"waits {100 * r['wait']:.2f} %")
        finally:
            nginx.close()


if __name__ == "__main__":
    main()
