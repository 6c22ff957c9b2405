"""Writes odd.safetensors, types that Hooke has none for and doubles that no
float holds, and slots.safetensors, what a TensorFlow Saver keeps of a model
trained with Adam and averages.

    make_odd.py compare FILE...     what of FILE is not as it was in odd
"""
import json
import struct
import sys

TENSORS = {
    "c64": ("C64", [2], struct.pack("<4f", 1, 2, 3, 4)),
    "wide": ("F64", [2], struct.pack("<2d", 1e300, 3e300)),
    "half": ("F16", [3], struct.pack("<3e", 0.5, -2, 65504)),
    "f8": ("F8_E4M3", [4], bytes([0, 56, 126, 184])),
    "f8wide": ("F8_E5M2", [1], bytes([60])),
    "small": ("I8", [3], struct.pack("<3b", -128, 0, 127)),
    "short": ("I16", [2], struct.pack("<2h", -32768, 32767)),
    "word": ("U16", [1], struct.pack("<H", 65535)),
    "long": ("U32", [1], struct.pack("<I", 2**32 - 1)),
    "longer": ("U64", [1], struct.pack("<Q", 2**64 - 1)),
    "brain": ("BF16", [2], bytes([0x80, 0x3F, 0x00, 0x40])),
    "six": ("F6_E2M3", [4], bytes(3)),
}

FLOATS = struct.pack("<2f", 1, 2)
SLOTS = {name: ("F32", [2], FLOATS) for name in (
    "dense/bias", "dense/bias/Adam", "dense/bias/t_0/Adam_1",
    "dense/bias/ExponentialMovingAverage", "dense/bias_of_another")}
SLOTS["beta1_power"] = SLOTS["training/beta2_power_1"] = ("F32", [], FLOATS[:4])
SLOTS["global_step"] = ("I64", [], struct.pack("<q", 7))


def write(path, tensors):
    head, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape,
                      "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def read(path):
    with open(path, "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    return {name: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])])
            for name, e in head.items() if name != "__metadata__"}


if sys.argv[1:2] == ["compare"]:
    for path in sys.argv[2:]:
        got = read(path)
        print(path, "lacks", sorted(TENSORS.keys() - got.keys()), "changes",
              sorted(k for k, v in got.items() if v != TENSORS[k]))
else:
    write("odd.safetensors", TENSORS)
    write("slots.safetensors", SLOTS)
