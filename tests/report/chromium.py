"""A headless Chromium, spoken to over two pipes: no other package is needed.

The browser reads commands from its descriptor 3 and writes answers and events
to 4, JSON objects that end with a NUL byte (--remote-debugging-pipe).
"""
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
LIMIT = 60  # seconds for an answer, on a loaded machine


def find():
    """The browser's path, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    def __init__(self, path):
        self.home = tempfile.mkdtemp(prefix="hooke-chromium-")
        theirs_in, self.out = os.pipe()
        self.inp, theirs_out = os.pipe()

        def place():  # in the child; above 9 first, lest one hides the other
            a = fcntl.fcntl(theirs_in, fcntl.F_DUPFD, 10)
            b = fcntl.fcntl(theirs_out, fcntl.F_DUPFD, 10)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.child = subprocess.Popen(
            [path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox",
             "--disable-gpu", "--hide-scrollbars", "--no-first-run",
             "--disable-dev-shm-usage", f"--user-data-dir={self.home}",
             "about:blank"],
            preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.buffer, self.number, self.session = b"", 0, None
        self.events = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget",
                                 targetId=page["targetId"],
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        self.child.terminate()
        self.child.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def read(self, deadline):
        """The next object."""
        while b"\0" not in self.buffer:
            wait = deadline - time.monotonic()
            if wait <= 0 or not select.select([self.inp], [], [], wait)[0]:
                raise TimeoutError(f"no answer in {LIMIT} seconds")
            chunk = os.read(self.inp, 1 << 16)
            if not chunk:
                raise EOFError("the browser has ended")
            self.buffer += chunk
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.number += 1
        what = {"id": self.number, "method": method, "params": params}
        if self.session:
            what["sessionId"] = self.session
        os.write(self.out, json.dumps(what).encode() + b"\0")
        deadline = time.monotonic() + LIMIT
        while True:
            got = self.read(deadline)
            if got.get("id") != self.number:
                self.events.append(got)
            elif "error" in got:
                raise RuntimeError(f"{method}: {got['error']['message']}")
            else:
                return got["result"]

    def wait(self, method):
        """Until this event has come."""
        deadline = time.monotonic() + LIMIT
        while not any(e.get("method") == method for e in self.events):
            self.events.append(self.read(deadline))

    def evaluate(self, expression):
        got = self.call("Runtime.evaluate", expression=expression,
                        returnByValue=True)
        if "exceptionDetails" in got:
            raise RuntimeError(json.dumps(got["exceptionDetails"]))
        return got["result"].get("value")

    def press(self, key, code):
        for kind in ("rawKeyDown", "char", "keyUp"):
            if kind == "char" and key != "Enter":
                continue
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=code,
                      **({"text": "\r"} if key == "Enter" else {}))
