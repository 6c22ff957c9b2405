#!/usr/bin/env python3
"""What the event files of a sweep's folders call its parameters: hparams.py
FOLDER..., one line each."""
import pathlib
import struct
import sys


def fields(message):
    """Pairs of number and bytes, or of number and integer."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        size = {0: 0, 1: 8, 5: 4}.get(kind)
        if kind == 0:
            yield key >> 3, varint()
            continue
        if kind == 2:
            size = varint()
        yield key >> 3, message[at:at + size]
        at += size


def inside(messages, *path):
    for number in path:
        messages = [v for m in messages for k, v in fields(m) if k == number]
    return messages


def events(path):
    data, at = path.read_bytes(), 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        yield data[at + 12:at + 12 + size]
        at += size + 16


for folder in sys.argv[1:]:
    names = set()
    for file in pathlib.Path(folder).glob("*.hparams"):
        # Event.summary.value.metadata.plugin_data.content
        pages = inside(list(events(file)), 5, 1, 9, 1, 2)
        names.update(inside(pages, 2, 4, 1))  # Experiment.hparam_infos.name
        names.update(inside(pages, 3, 1, 1))  # SessionStartInfo.hparams' keys
    print(*sorted(n.decode() for n in names))
