"""Writes a.npy and b.npy, rows of two and of three word ids, the classes that
follow from them, and lists.yaml: lists of several lengths."""
import random
import struct

random.seed(5)


def npy(path, shape, values):
    head = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}"
    head = head.ljust(117) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)))
        f.write(head.encode() + struct.pack(f"<{len(values)}q", *values))


for name, width in ("a", 2), ("b", 3):
    rows = [[random.randrange(20) for _ in range(width)] for _ in range(300)]
    npy(name + ".npy", (300, width), sum(rows, []))
    npy(name + "-label.npy", (300,), [int(min(r) < 5) for r in rows])

with open("lists.yaml", "w", encoding="utf-8") as out:
    out.write("""model:
  canned: dnn
  hidden: [16]
  columns:
    - identity: {feature: words, buckets: 20, dimension: 4}
optimizer: {type: adam, learning_rate: 0.02}
data:
  train:
    source: tfrecord
    files: [a.tfrecord, b.tfrecord]
    columns: {words: "int[]", label: int}
    batch: 32
run: {epochs: 20}
""")
