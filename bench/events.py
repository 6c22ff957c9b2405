"""Scalars and their times out of TensorBoard event files."""

import os
import struct

def records(path):
    """The records of an event file; a torn last one ends it."""
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    while at + 12 <= len(data):
        size = struct.unpack_from("<Q", data, at)[0]
        if at + 16 + size > len(data):
            return
        yield data[at + 12:at + 12 + size]
        at += 16 + size


def fields(data):
    """Field numbers and values of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        yield key >> 3, data[at:at + size]
        at += size


def scalars(folder):
    """(wall time, step, tag, value) of every scalar in a folder's events."""
    found = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if "tfevents" not in name:
            continue
        for record in records(os.path.join(folder, name)):
            event = dict(fields(record))
            wall = struct.unpack("<d", event[1])[0]
            found.append((wall, event.get(2, 0), None, None))
            for number, value in fields(event.get(5, b"")):
                item = dict(fields(value)) if number == 1 else {}
                if 2 in item:
                    found.append((wall, event.get(2, 0), item[1].decode(),
                                  struct.unpack("<f", item[2])[0]))
    return found
