#!/usr/bin/env python3
"""Makes the NumPy archives that tests/test_ckpt_npz.c reads.

    tools/make_npz.py tests/data/ckpt

Element i of every array is i in the order of its indices, but for strings and
booleans. Made with NumPy 2.4.6.
"""
import pathlib
import sys

import numpy as np


def arrays():
    out = {}
    for code in "f4 f8 f2 i1 i2 i4 i8 u1 u2 u4 u8".split():
        out["plain/" + code] = np.arange(6, dtype="<" + code).reshape(2, 3)
    out["big/f4"] = np.arange(6, dtype=">f4").reshape(2, 3)
    out["big/i8"] = np.arange(3, dtype=">i8")
    out["fortran"] = np.asfortranarray(
        np.arange(24, dtype="<f4").reshape(2, 3, 4))
    out["fortran_big"] = np.asfortranarray(
        np.arange(6, dtype=">i2").reshape(3, 2))
    out["bool"] = np.array([True, False, True])
    out["scalar"] = np.float32(0)
    out["empty"] = np.zeros((0, 3), "<f4")
    out["bytes"] = np.array([b"", b"ab", b"abc"])
    out["text"] = np.array(["\u00e9", "", "\U0001f600z"])
    out["text_big"] = np.array(["ab"], dtype=">U2")
    return out


def main():
    folder = pathlib.Path(sys.argv[1])
    np.savez(folder / "npz_stored.npz", **arrays())
    np.savez_compressed(folder / "npz_packed.npz", **arrays())
    np.savez(folder / "npz_object.npz", a=np.array([{}], dtype=object))
    record = np.zeros(2, dtype=[("x", "<f4"), ("y", "<i4")])
    np.savez(folder / "npz_record.npz", a=record)


if __name__ == "__main__":
    main()
