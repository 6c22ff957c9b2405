#!/usr/bin/env python3
"""Trains on a table that changes after it was learned and before the run
begins: changed_table.py TABLE COMMAND...

The command has to say something between the two: its stderr is a pipe that is
full until table.json is there (-d DIR names the folder).
"""
import fcntl
import os
import subprocess
import sys
import time

table, command = sys.argv[1], sys.argv[2:]
kept = os.path.join(command[command.index("-d") + 1], "table.json")
out, into = os.pipe()
room = fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 4096)
os.write(into, b"." * room)
with subprocess.Popen(command, stderr=into, stdout=subprocess.DEVNULL) as run:
    os.close(into)
    end = time.monotonic() + 60
    while not os.path.exists(kept) and time.monotonic() < end:
        time.sleep(0.01)
    with open(table, "r+b") as f:  # as many bytes, but others
        f.seek(-2, os.SEEK_END)
        last = f.read(1)
        f.seek(-2, os.SEEK_END)
        f.write(b"9" if last != b"9" else b"8")
    while os.read(out, 65536):
        pass
sys.exit(run.returncode)
