"""Runs tf.data over the files of bench_data_files, where TensorFlow is there.

    peer_data.py --bench PROGRAM [--rounds N] [--case NAME]

PROGRAM (bench_data_files) makes the files, measures Hooke and leaves them for
tf.data, which reads the same records into the same batches in the form that
its users find fastest: batches of records, parsed as a whole, one thread, the
loop inside TensorFlow. Prints one JSON object a case, as the C programs do:
here the floor is tf.data, and `ratio` says how many times as fast Hooke is
(processor seconds of the best round on either side). Without TensorFlow it
says so and prints nothing else.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

BATCH = 128
TARGET = 3.0


def one_thread(tf, dataset):
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    return dataset.with_options(options)


def mnist(tf, path):
    spec = {"image_raw": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(records):
        values = tf.io.parse_example(records, spec)
        pixels = tf.io.decode_raw(values["image_raw"], tf.uint8,
                                  fixed_length=784)
        return tf.cast(pixels, tf.float32), values["label"]

    return tf.data.TFRecordDataset(path).batch(BATCH).map(parse)


def criteo(tf, path):
    spec = {"label": tf.io.FixedLenFeature([], tf.int64)}
    for k in range(1, 14):
        spec["I%d" % k] = tf.io.FixedLenFeature([], tf.float32)
    for k in range(1, 27):
        spec["C%d" % k] = tf.io.FixedLenFeature([], tf.int64)

    def parse(records):
        return tf.io.parse_example(records, spec)

    return tf.data.TFRecordDataset(path).batch(BATCH).map(parse)


# What a case is called here: the case of bench_data_files, and its pipeline.
CASES = {"tf_data_mnist": ("tfrecord_mnist", mnist),
         "tf_data_criteo": ("tfrecord_criteo", criteo)}


def seconds(tf, dataset):
    """Processor seconds of one pass; every value is made, none is kept."""
    start = time.process_time()
    count = dataset.reduce(
        tf.constant(0, tf.int64),
        lambda n, *values: n + tf.constant(1, tf.int64))
    if int(count) == 0:
        sys.exit("tf.data read nothing")
    return time.process_time() - start


def ours(bench, case, rounds):
    """Hooke's result for the case, and the file that it has left."""
    child = subprocess.run(
        [bench, "--rounds", str(rounds), "--case", case, "--keep"],
        capture_output=True, text=True, check=True)
    path = re.search(r"^%s: (.*)$" % case, child.stderr, re.M).group(1)
    return json.loads(child.stdout), path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--case")
    args = parser.parse_args()
    try:
        import tensorflow as tf
    except ImportError:
        print("peer_data: TensorFlow is not there, left out", file=sys.stderr)
        return
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    for case, (bench_case, make) in CASES.items():
        if args.case and args.case != case:
            continue
        result, path = ours(args.bench, bench_case, args.rounds)
        try:
            dataset = one_thread(tf, make(tf, path))
            seconds(tf, dataset)  # warms up
            peer = min(seconds(tf, dataset) for _ in range(args.rounds))
        finally:
            os.unlink(path)
        print(json.dumps({
            "case": case,
            "bytes": result["bytes"],
            "ours_s": result["ours_s"],
            "floor_s": round(peer, 6),
            "ours_mb_s": result["ours_mb_s"],
            "floor_mb_s": round(result["bytes"] / peer * 1e-6, 1),
            "ratio": round(peer / result["ours_s"], 3),
            "target": TARGET,
        }), flush=True)


if __name__ == "__main__":
    main()
