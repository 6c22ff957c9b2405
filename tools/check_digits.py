#!/usr/bin/env python3
"""Checks that the digits are a real task, and draws a contact sheet.

    tools/check_digits.py build/release/libhooke.so
    tools/check_digits.py build/release/libhooke.so --sheet digits.png

Three PyTorch models learn 20000 images on one thread and are judged on 10000
of the test split: a linear model has to stay below 93 %, 256 hidden units to
land within 95 and 98 %, two convolutions to pass 98 %. Takes a few minutes.
"""
import argparse
import ctypes
import struct
import sys
import time
import zlib

import numpy as np

SIDE, PIXELS = 28, 784
TRAIN, TEST = 0, 1
F32 = 1  # HK_F32


class Options(ctypes.Structure):
    """hk_digits_options of hooke/digits.h."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("seed", ctypes.c_uint64),
        ("split", ctypes.c_int),
        ("distortion", ctypes.c_float),
        ("noise", ctypes.c_float),
        ("clutter", ctypes.c_float),
    ]


def draw(lib, split, n, seed):
    options = Options()
    size = ctypes.c_size_t(ctypes.sizeof(options))
    lib.hk_digits_options_init(ctypes.byref(options), size)
    options.split, options.seed = split, seed
    images = np.empty((n, PIXELS), np.float32)
    labels = np.empty(n, np.int32)
    status = lib.hk_digits_draw(
        ctypes.byref(options), ctypes.c_uint64(0), ctypes.c_int64(n),
        ctypes.c_int(F32),
        images.ctypes.data_as(ctypes.c_void_p),
        labels.ctypes.data_as(ctypes.c_void_p))
    if status != 0:
        lib.hk_last_error.restype = ctypes.c_char_p
        sys.exit(lib.hk_last_error().decode())
    return images, labels.astype(np.int64)


def write_sheet(path, images, labels, columns=20):
    """A row per class and half, as a grey PNG at three times the size."""
    order = np.argsort(labels, kind="stable")
    rows = []
    for digit in range(10):
        found = images[order[labels[order] == digit]][:2 * columns]
        for half in (found[:columns], found[columns:]):
            tiles = half.reshape(columns, SIDE, SIDE)
            tiles = np.pad(tiles, ((0, 0), (1, 1), (1, 1)),
                           constant_values=0.4)
            rows.append(np.concatenate(list(tiles), axis=1))
    sheet = np.concatenate(rows).repeat(3, 0).repeat(3, 1)
    grey = (sheet * 255).round().astype(np.uint8)
    height, width = grey.shape

    def chunk(kind, data):
        body = kind + data
        return (struct.pack(">I", len(data)) + body +
                struct.pack(">I", zlib.crc32(body)))

    raw = b"".join(b"\0" + row.tobytes() for row in grey)
    with open(path, "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" +
                  chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0,
                                             0, 0, 0)) +
                  chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def models(nn):
    """Name, model, epochs, learning rate, bounds of the accuracy in %."""
    return [
        ("linear", nn.Linear(PIXELS, 10), 30, 1e-3, 0, 93),
        ("mlp 784-256-10",
         nn.Sequential(nn.Linear(PIXELS, 256), nn.ReLU(), nn.Linear(256, 10)),
         20, 1e-3, 95, 98),
        ("2 convolutions",
         nn.Sequential(nn.Unflatten(1, (1, SIDE, SIDE)),
                       nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(),
                       nn.MaxPool2d(2),
                       nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(),
                       nn.MaxPool2d(2), nn.Flatten(),
                       nn.Linear(32 * 49, 128), nn.ReLU(),
                       nn.Linear(128, 10)),
         6, 1e-3, 98, 100),
    ]


def learn(torch, model, epochs, rate, train, test, batch=64):
    """Adam with the rate falling to zero; returns test predictions."""
    x, y = train
    steps = epochs * (len(x) // batch)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 1 - step / steps)
    loss_fn = torch.nn.CrossEntropyLoss()
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for i in range(0, len(x) - batch + 1, batch):
            pick = order[i:i + batch]
            optimizer.zero_grad()
            loss_fn(model(x[pick]), y[pick]).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        return torch.cat([model(part).argmax(1) for part in test[0].split(500)])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="path of libhooke.so")
    parser.add_argument("--sheet", metavar="PNG",
                        help="only write a contact sheet")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    lib = ctypes.CDLL(args.library)
    if args.sheet:
        write_sheet(args.sheet, *draw(lib, TRAIN, 400, args.seed))
        return 0

    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    train = [torch.from_numpy(a) for a in draw(lib, TRAIN, 20000, args.seed)]
    test = [torch.from_numpy(a) for a in draw(lib, TEST, 10000, args.seed)]
    failed = False
    for name, model, epochs, rate, low, high in models(torch.nn):
        start = time.monotonic()
        guess = learn(torch, model, epochs, rate, train, test)
        right = 100 * (guess == test[1]).float().mean().item()
        each = [100 * (guess == test[1])[test[1] == d].float().mean().item()
                for d in range(10)]
        fits = low < right < high
        failed |= not fits
        print(f"{name}: {right:.2f} % (wanted {low} to {high}) "
              f"{'ok' if fits else 'FAILED'}, "
              f"{time.monotonic() - start:.0f} s; by class",
              " ".join(f"{e:.1f}" for e in each), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
