"""Runs a command on a terminal of its own, presses Ctrl-C so many times once
it trains, and prints how it ended and what the last lines were.

    press.py TIMES COMMAND...
"""
import os
import pty
import re
import sys
import time

times, command = int(sys.argv[1]), sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execvp(command[0], command)
text, pressed, deadline = b"", 0, time.monotonic() + 60
while time.monotonic() < deadline:
    try:
        chunk = os.read(fd, 4096)
    except OSError:
        break
    if not chunk:
        break
    text += chunk
    # The next press once the last one was answered.
    seen = text.count(b"stopping") if pressed else b"loss" in text
    if pressed < times and seen >= max(pressed, 1):
        os.write(fd, b"\x03")
        pressed += 1
_, status = os.waitpid(pid, 0)
lines = re.split(r"[\r\n]+", text.decode())
print("exit code", os.waitstatus_to_exitcode(status))
print("\n".join(x for x in lines if "stopp" in x))
