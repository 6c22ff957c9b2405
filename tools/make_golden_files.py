#!/usr/bin/env python3
"""Makes the files in tests/data/event and tests/data/ckpt that come from
other programs: TensorFlow, TensorBoard, safetensors, NumPy, Snappy.

    make test-interop                          # makes build/python/interop
    build/python/interop/bin/pip install cramjam
    build/python/interop/bin/python tools/make_golden_files.py

The files in the tree were made with tensorflow-cpu 2.15.1, tensorboard 2.15.2,
safetensors 0.8.0, numpy 1.26.4 and cramjam 2.14.0. The tests hold the values
below, so that a change here is a change there.
"""
import os
import pathlib
import shutil
import struct
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import cramjam
import numpy as np
import safetensors.numpy
import tensorflow as tf
from tensorboard.plugins.hparams import api as hp
from tensorflow.python.training import moving_averages

v1 = tf.compat.v1
DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"

# Values around bucket limits, with repetition.
HISTOGRAM = [0.0, -0.0, 1.0, 1.0, -2.5, 1e-13, 3e30, -1e-12, 0.1, 0.1, 7.25]
# 2 x 3 grey pixels.
PIXELS = np.arange(6, dtype=np.uint8).reshape(2, 3, 1) * 40


def only_file(folder):
    (path,) = pathlib.Path(folder).iterdir()
    return path


def event(summary=None, step=0, **what):
    e = v1.Event(wall_time=1.5, step=step, **what)
    if summary is not None:
        e.summary.ParseFromString(summary)
    return e


def events_v1(out):
    """Everything tf.compat.v1.summary knows how to write."""
    with tempfile.TemporaryDirectory() as tmp, tf.Graph().as_default():
        writer = v1.summary.FileWriter(tmp)
        with v1.Session() as session:
            summaries = session.run(
                [
                    v1.summary.scalar("loss", 0.5),
                    v1.summary.histogram("weights", HISTOGRAM),
                    v1.summary.image("picture", PIXELS[None]),
                    v1.summary.text("note", tf.constant("some **text**")),
                ]
            )
        for step, summary in enumerate(summaries):
            writer.add_event(event(summary, step + 1))
        log = v1.SessionLog(status=v1.SessionLog.CHECKPOINT)
        log.checkpoint_path = "run/model.ckpt-5"
        writer.add_event(event(step=5, session_log=log))
        writer.close()
        shutil.copy(only_file(tmp), out / "v1.tfevents")
        # The histogram alone, to be compared with ours byte for byte.
        (out / "histogram.pb").write_bytes(
            v1.Summary.FromString(summaries[1]).value[0].histo
            .SerializeToString())


def events_v2(out):
    """The same through tf.summary: tensors and plugins."""
    with tempfile.TemporaryDirectory() as tmp:
        with tf.summary.create_file_writer(tmp).as_default():
            tf.summary.scalar("loss", 0.5, step=1)
            tf.summary.scalar("zero", 0.0, step=1)
            tf.summary.histogram("weights", [0.0, 1.0, 1.0, 4.0], step=2,
                                 buckets=2)
            tf.summary.image("picture", PIXELS[None], step=3)
            tf.summary.text("note", "some **text**", step=4)
            hp.hparams({"lr": 0.5, "optimizer": "sgd"}, trial_id="trial-1")
        shutil.copy(only_file(tmp), out / "v2.tfevents")


def partitioned(name, shape, parts, axis):
    """A variable in slices that counts its elements."""
    whole = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)

    def part(shape, dtype, partition_info):
        at = partition_info.var_offset
        return tf.constant(whole[at[0]:at[0] + shape[0],
                                 at[1]:at[1] + shape[1]], dtype)

    v1.get_variable(name, shape, initializer=part,
                    partitioner=v1.fixed_size_partitioner(parts, axis))


def variables_v1():
    """Variables of every type, partitioned ones, averages."""
    v1.get_variable("w", initializer=np.arange(12, dtype=np.float32)
                    .reshape(3, 4))
    v1.get_variable("global_step", initializer=np.int64(7))
    v1.get_variable("bf16", initializer=tf.constant([1.5, -2.0],
                                                    tf.bfloat16))
    v1.get_variable("half", initializer=np.array([0.5, -1], np.float16))
    v1.get_variable("double", initializer=np.array([[1e300]], np.float64))
    v1.get_variable("i8", initializer=np.array([-128, 127], np.int8))
    v1.get_variable("i16", initializer=np.array([-300], np.int16))
    v1.get_variable("i32", initializer=np.array([-70000, 70000], np.int32))
    v1.get_variable("u8", initializer=np.array([255, 0, 1], np.uint8))
    v1.get_variable("u16", initializer=np.array([65535], np.uint16))
    v1.get_variable("flag", initializer=np.array([True, False]))
    v1.get_variable("complex", initializer=np.array([1 + 2j], np.complex64))
    v1.get_variable("empty", initializer=np.zeros([0, 3], np.float32))
    v1.get_variable("words",
                    initializer=tf.constant([["", "hooke"], ["a\0b", "x"]]))
    partitioned("rows", [7, 2], 3, axis=0)
    partitioned("columns", [2, 5], 2, axis=1)
    average = moving_averages.ExponentialMovingAverage(0.5)
    return average.apply([v1.global_variables()[0]])


def checkpoint_v1(out):
    with tempfile.TemporaryDirectory() as tmp, tf.Graph().as_default():
        apply = variables_v1()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(apply)
            v1.train.Saver().save(session, tmp + "/v1", write_state=False,
                                  write_meta_graph=False)
        copy_bundle(tmp, out)


def checkpoint_sharded(out):
    """Two devices, so two data files."""
    with tempfile.TemporaryDirectory() as tmp, tf.Graph().as_default():
        for i in range(2):
            with tf.device(f"/cpu:{i}"):
                v1.get_variable(f"part{i}",
                                initializer=np.full([2, 2], i + 1.0))
        config = v1.ConfigProto(device_count={"CPU": 2})
        with v1.Session(config=config) as session:
            session.run(v1.global_variables_initializer())
            v1.train.Saver(sharded=True).save(
                session, tmp + "/sharded", write_state=False,
                write_meta_graph=False)
        copy_bundle(tmp, out)


def checkpoint_v2(out):
    """Object-based: names with a suffix, a string with the graph."""
    with tempfile.TemporaryDirectory() as tmp:
        tf.train.Checkpoint(
            w=tf.Variable([[1.0, 2.0]]), n=tf.Variable(3, dtype=tf.int64)
        ).write(tmp + "/v2")
        copy_bundle(tmp, out)


def checkpoint_many(out):
    """More entries than one block's restart interval, shared prefixes."""
    with tempfile.TemporaryDirectory() as tmp:
        names = [f"layer_{i:03d}/kernel" for i in range(40)]
        tf.raw_ops.SaveV2(
            prefix=tmp + "/many", tensor_names=names,
            shape_and_slices=[""] * 40,
            tensors=[tf.constant(float(i)) for i in range(40)])
        copy_bundle(tmp, out)


def copy_bundle(folder, out):
    for path in sorted(pathlib.Path(folder).iterdir()):
        shutil.copy(path, out / path.name)


CRC_TABLE = []
for n in range(256):
    for _ in range(8):
        n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
    CRC_TABLE.append(n)


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varints(data, count):
    values = []
    for _ in range(count):
        value = shift = 0
        while True:
            byte, data = data[0], data[1:]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        values.append(value)
    return values


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def compressed_index(out):
    """many.index again, its blocks packed with Snappy."""
    index = (out / "many.index").read_bytes()
    footer = index[-48:]
    _, _, offset, size = varints(footer, 4)
    packed = b""

    def add(block):
        nonlocal packed
        data = bytes(cramjam.snappy.compress_raw(block)) + b"\1"
        handle = varint(len(packed)) + varint(len(data) - 1)
        packed += data + struct.pack("<I", masked_crc(data))
        return handle

    # One data block: entry {shared 0, unshared, value} at the index's start.
    block = index[offset:offset + size]
    _, key_size, value_size = block[0], block[1], block[2]
    key = block[3:3 + key_size]
    start, length = varints(block[3 + key_size:], 2)
    handle = add(index[start:start + length])
    meta = add(b"\0\0\0\0\1\0\0\0")
    entry = bytes([0, key_size, len(handle)]) + key + handle
    root = add(entry + b"\0\0\0\0\1\0\0\0")
    packed += (meta + root).ljust(40, b"\0") + footer[40:]
    (out / "snappy.index").write_bytes(packed)
    shutil.copy(out / "many.data-00000-of-00001",
                out / "snappy.data-00000-of-00001")
    # A text with far copies, alone.
    text = b"".join(b"line %d of a text with repetition\n" % (i * i)
                    for i in range(60))
    (out / "snappy.txt").write_bytes(text)
    (out / "snappy.bin").write_bytes(bytes(cramjam.snappy.compress_raw(text)))


def arrays():
    return {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "step": np.array(7, np.int64),
        "half": np.array([0.5, -1], np.float16),
        "flag": np.array([True, False]),
        "none": np.zeros([0, 2], np.float32),
    }


def main():
    events, ckpt = DATA / "event", DATA / "ckpt"
    events.mkdir(parents=True, exist_ok=True)
    ckpt.mkdir(parents=True, exist_ok=True)
    events_v1(events)
    events_v2(events)
    checkpoint_v1(ckpt)
    checkpoint_sharded(ckpt)
    checkpoint_v2(ckpt)
    checkpoint_many(ckpt)
    compressed_index(ckpt)
    safetensors.numpy.save_file(arrays(), ckpt / "rust.safetensors",
                                metadata={"made": "elsewhere"})
    np.savez(ckpt / "numpy.npz", **arrays())
    np.savez_compressed(ckpt / "numpy_compressed.npz", **arrays())
    for path in sorted([*events.iterdir(), *ckpt.iterdir()]):
        print(f"{path.stat().st_size:6d} {path.relative_to(DATA)}")


if __name__ == "__main__":
    main()
