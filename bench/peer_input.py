"""One worker's training input in tf.data or PyTorch, as bench_input.c does it.

    peer_input.py --side tf|torch --format csv|tfrecord|idx --file FILE
                  [--labels FILE] [--workers N] [--worker I] [--epochs N]
                  [--shuffle N]

Each side in the form that its users find fastest on one thread: tf.data takes
the worker's shard of records, shuffles them and parses batches of them as a
whole, with the loop inside of TensorFlow; PyTorch has a map-style dataset, a
DistributedSampler and the DataLoader's own collation, no worker processes
(they would cost more processor time). Prints one JSON object, like
bench_input: the same examples, processor seconds without start and first
epoch, and the bytes that the process has read in those epochs.
"""

import argparse
import csv
import json
import os
import struct
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

BATCH = 128
PIXELS = 784
NUMBERS, WORDS = 6, 8


def bytes_read():
    with open("/proc/self/io", encoding="ascii") as f:
        return int(f.readline().split()[1])


# ---- tf.data ----------------------------------------------------------------

def tf_csv(tf, args):
    defaults = [0.0] * NUMBERS + [""] * WORDS + [tf.constant(0, tf.int64)]
    lines = tf.data.TextLineDataset(args.file)
    return lines, lambda batch: tf.io.decode_csv(batch, defaults)


def tf_tfrecord(tf, args):
    spec = {"image_raw": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(records):
        values = tf.io.parse_example(records, spec)
        pixels = tf.io.decode_raw(values["image_raw"], tf.uint8,
                                  fixed_length=PIXELS)
        return tf.cast(pixels, tf.float32), values["label"]

    return tf.data.TFRecordDataset(args.file), parse


def tf_idx(tf, args):
    import numpy as np
    images = np.fromfile(args.file, np.uint8, offset=16).reshape(-1, PIXELS)
    labels = np.fromfile(args.labels, np.uint8, offset=8)
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    return data, lambda x, y: (tf.cast(x, tf.float32), tf.cast(y, tf.int64))


def tf_side(args):
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    data, parse = {"csv": tf_csv, "tfrecord": tf_tfrecord,
                   "idx": tf_idx}[args.format](tf, args)
    data = data.shard(args.workers, args.worker)
    data = data.shuffle(args.shuffle, seed=1).batch(BATCH).map(parse)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    data = data.with_options(options)

    def add(state, *values):
        label = values[-1]
        if isinstance(label, (tuple, list)):
            label = label[-1]
        return (state[0] + tf.size(label, tf.int64),
                state[1] + tf.reduce_sum(label))

    def epoch():
        zero = tf.constant(0, tf.int64)
        n, total = data.reduce((zero, zero), add)
        return int(n), int(total)

    return epoch


# ---- PyTorch ----------------------------------------------------------------

class Rows:
    """The rows of the CSV file, read once with Python's own reader."""

    def __init__(self, args):
        with open(args.file, encoding="ascii", newline="") as f:
            self.rows = list(csv.reader(f))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return ([float(x) for x in row[:NUMBERS]], row[NUMBERS:-1],
                int(row[-1]))


class Records:
    """Records by an index of offsets; the checksums are not looked at."""

    def __init__(self, args):
        self.file = open(args.file, "rb")
        self.at, place = [], 0
        while head := self.file.read(12):
            size = struct.unpack("<Q", head[:8])[0]
            self.at.append((place + 12, size))
            place += size + 16
            self.file.seek(place)
        # All records are alike but for the pixels and the class.
        # Behind the name: kind and length of a feature, a list, its bytes.
        name = b"image_raw"
        self.pixels = self.record(0).index(name) + len(name) + 9

    def record(self, i):
        place, size = self.at[i]
        self.file.seek(place)
        return self.file.read(size)

    def __len__(self):
        return len(self.at)

    def __getitem__(self, i):
        import torch
        record = self.record(i)
        image = torch.frombuffer(bytearray(record), dtype=torch.uint8,
                                 count=PIXELS, offset=self.pixels)
        return image.float(), record[-1]


class Pictures:
    def __init__(self, args):
        import numpy as np
        import torch
        images = np.fromfile(args.file, np.uint8, offset=16)
        labels = np.fromfile(args.labels, np.uint8, offset=8)
        self.images = torch.from_numpy(images).view(-1, PIXELS)
        self.labels = torch.from_numpy(labels).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i].float(), self.labels[i]


def torch_side(args):
    import torch
    from torch.utils.data import DataLoader
    from torch.utils.data.distributed import DistributedSampler
    torch.set_num_threads(1)
    data = {"csv": Rows, "tfrecord": Records, "idx": Pictures}[args.format](
        args)
    sampler = DistributedSampler(data, args.workers, args.worker, seed=1)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)

    def epoch():
        n = total = 0
        sampler.set_epoch(sampler.epoch + 1)
        for batch in loader:
            n += len(batch[-1])
            total += int(batch[-1].sum())
        return n, total

    return epoch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", choices=("tf", "torch"), required=True)
    parser.add_argument("--format", required=True)
    parser.add_argument("--file", required=True)
    parser.add_argument("--labels")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--worker", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--shuffle", type=int, default=10000)
    args = parser.parse_args()
    epoch = (tf_side if args.side == "tf" else torch_side)(args)
    epoch()  # warms up
    before, start = bytes_read(), time.process_time()
    examples = total = 0
    for _ in range(args.epochs):
        n, s = epoch()
        examples += n
        total += s
    print(json.dumps({"examples": examples,
                      "seconds": round(time.process_time() - start, 6),
                      "bytes": bytes_read() - before, "sum": total}))


if __name__ == "__main__":
    main()
