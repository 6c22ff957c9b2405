#!/usr/bin/env python3
"""record_dialogue.py HOOKE FOLDER - records what a worker sends to its center.

Trains FOLDER/tiny.yaml with one center and one worker over unix sockets, through
a proxy that stores the bytes the worker sends. FOLDER/wire-control.bin is the
connection that brings the model and asks for data, FOLDER/wire-worker.bin the
one that trains; tests/test_cluster_guards.c replays both.
"""
import os
import socket
import subprocess
import sys
import tempfile
import threading

TIMEOUT_S = 60
DATA_FRAME = 15  # only the connection that trains sends the initial values


def copy(source, target, record):
    while data := source.recv(1 << 16):
        if record is not None:
            record.extend(data)
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def serve(listener, center, records):
    while True:
        client, _ = listener.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(center)
        records.append(bytearray())
        for pair in ((client, server, records[-1]), (server, client, None)):
            threading.Thread(target=copy, args=pair, daemon=True).start()


def frame_types(record):
    at, types = 16, []
    while at + 32 <= len(record):
        types.append(record[at])
        at += 32 + int.from_bytes(record[at + 4:at + 8], "little")
    return types


def main():
    hooke, folder = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    records = []
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        experiment = os.path.join(folder, "tiny.yaml")
        center = subprocess.Popen([hooke, "center", experiment, "--listen", "unix:center.sock",
                                   "--center-file", "center.bin", "--workers", "1"])
        while not os.path.exists("center.sock"):
            if center.poll() is not None:
                sys.exit("the center ended before it listened")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("proxy.sock")
        listener.listen()
        threading.Thread(target=serve, args=(listener, "center.sock", records),
                         daemon=True).start()
        subprocess.run([hooke, "worker", experiment, "--center", "unix:proxy.sock", "--workers", "1",
                        "--index", "0", "--threads", "1", "-d", "model"],
                       check=True, timeout=TIMEOUT_S)
        center.wait(TIMEOUT_S)
        for name in ("center.bin", "center.bin.run"):
            print(name, os.path.getsize(name), "bytes")
    if len(records) != 2:
        sys.exit(f"{len(records)} connections were recorded, 2 expected")
    for record in records:
        kind = "worker" if DATA_FRAME in frame_types(record) else "control"
        with open(os.path.join(folder, f"wire-{kind}.bin"), "wb") as out:
            out.write(record)
        print(kind, len(record), "bytes, frames", frame_types(record))


main()
