"""Workers and a center, killed with -9 at any moment: every difference counts
once.

    kill_workers.py [--kills N] [--seed N] [--workers N]

Every worker is a PyTorch process with a part of the model of its own, to which
it adds 1 at every step (method downpour: the difference goes to the center). It
writes down the steps that the center has acknowledged, in a file that outlives
it. When it comes back, and at the end, each element of its part is that number,
or one more where a kill has left the last step open: nothing is lost, nothing
came twice, and nothing that an earlier incarnation sent comes late. The center
has a file and is killed too.
"""
import argparse
import mmap
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
PART = 20000  # elements of a worker; the model is several chunks


class Journal:
    """What the center certainly has of a worker: a base, element by element, and
    the steps since. A file for every incarnation, complete or not there."""

    def __init__(self, folder, worker):
        self._folder, self._worker = pathlib.Path(folder), worker

    def _files(self):
        return sorted(self._folder.glob(f"journal-{self._worker}-*.ok"))

    def begin(self, base):
        """Another incarnation begins with these values."""
        path = self._folder / f"journal-{self._worker}-{len(self._files()):05}"
        path.write_bytes(bytes(8) + base.astype("<f4").tobytes())
        path.rename(f"{path}.ok")
        with open(f"{path}.ok", "r+b") as f:
            self._map = mmap.mmap(f.fileno(), 0)

    def add(self):
        steps = struct.unpack_from("<q", self._map)[0]
        struct.pack_into("<q", self._map, 0, steps + 1)

    def sure(self):
        """Values that the center has at least; None: nobody was here."""
        files = self._files()
        if not files:
            return None
        data = files[-1].read_bytes()
        return np.frombuffer(data, "<f4", offset=8) + struct.unpack_from("<q", data)[0]

    def steps(self):
        return sum(struct.unpack_from("<q", f.read_bytes()[:8])[0]
                   for f in self._files())

    def explains(self, values):
        """Says what is wrong, or nothing."""
        sure = self.sure()
        if sure is None:
            sure = np.zeros(PART, np.float32)
        off = values - sure
        if ((off == 0) | (off == 1)).all():
            return None
        i = int(np.argmax((off != 0) & (off != 1)))
        return (f"worker {self._worker}: element {i} is {values[i]} and "
                f"{sure[i]} are certain; off by {np.unique(off)[:5]}")


def work(address, worker, workers, folder):
    import torch

    import hooke.torch as hooke
    torch.set_num_threads(1)
    journal = Journal(folder, worker)
    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.zeros(workers * PART))
    mine = slice(worker * PART, (worker + 1) * PART)
    with hooke.join(model, None, center=address, period=1, worker=worker,
                    verbose=False, connect_seconds=120, lost_seconds=0) as w:
        found = model.w.detach()[mine].numpy().copy()
        wrong = journal.explains(found)
        if wrong:
            sys.exit(wrong)
        journal.begin(found)
        print("joined", flush=True)
        while True:
            before = w.stats()
            with torch.no_grad():
                model.w[mine].add_(1)
            w.step()
            # The center was away, or went in the middle: what is left of an
            # exchange goes out with the first that gets through after it.
            while True:
                s = w.stats()
                if s.reachable and (s.missed, s.reconnects) == (
                        before.missed, before.reconnects):
                    break
                before = s
                time.sleep(0.01)
                w.exchange_now()
            journal.add()


class Run:
    def __init__(self, folder, workers):
        self.folder, self.n = folder, workers
        self.address = f"unix:{folder}/center"
        self.center = self.start_center()
        self.workers = [self.start_worker(i) for i in range(workers)]

    def start_center(self):
        script = ("import sys; sys.path.insert(0, sys.argv[1]); import hooke\n"
                  "with hooke.start_center(sys.argv[2], method='downpour',\n"
                  "                        path=sys.argv[3], lease_seconds=2):\n"
                  "    print('up', flush=True); sys.stdin.read()\n")
        p = subprocess.Popen([sys.executable, "-c", script, str(HERE.parent),
                              self.address, str(self.folder / "center.bin")],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True)
        if p.stdout.readline() != "up\n":
            sys.exit("the center does not come up")
        return p

    def start_worker(self, i):
        return subprocess.Popen(
            [sys.executable, __file__, "--work", self.address, str(i),
             str(self.n), str(self.folder)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def kill(self, g):
        """One of them, at any moment; and starts it again."""
        victim = g.randrange(self.n + 1)
        if victim == self.n:
            self.center.kill()
            self.center.wait()
            self.center = self.start_center()
            return "center"
        p = self.workers[victim]
        p.kill()
        p.wait()
        if p.returncode != -signal.SIGKILL:
            sys.exit(f"worker {victim} ended by itself: {p.stderr.read()}")
        self.workers[victim] = self.start_worker(victim)
        return "worker"

    def steps(self):
        return sum(Journal(self.folder, i).steps() for i in range(self.n))

    def go_on(self, steps, seconds=240):
        """Waits until so many more steps have been made."""
        before, limit = self.steps(), time.monotonic() + seconds
        while self.steps() - before < steps:
            for i, p in enumerate(self.workers):
                if p.poll() is not None:
                    sys.exit(f"worker {i} ended by itself: {p.stderr.read()}")
            if time.monotonic() > limit:
                sys.exit(f"no step for {seconds} s")
            time.sleep(0.02)

    def check(self):
        import hooke
        for p in self.workers:
            p.send_signal(signal.SIGTERM)
        for p in self.workers:
            p.communicate(timeout=60)
        values = hooke.center_arrays(self.address)["w"]
        for i in range(self.n):
            wrong = Journal(self.folder, i).explains(
                values[i * PART:(i + 1) * PART])
            if wrong:
                sys.exit(wrong)
        self.center.stdin.close()
        self.center.wait(20)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--kills", type=int, default=200)
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.work:
        work(a.work[0], int(a.work[1]), int(a.work[2]), a.work[3])
    seed = a.seed if a.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    g, killed = random.Random(seed), {"worker": 0, "center": 0}
    with tempfile.TemporaryDirectory(prefix="hooke-") as name:
        run = Run(pathlib.Path(name), a.workers)
        for _ in range(a.kills):
            run.go_on(2)
            time.sleep(g.uniform(0, 0.05))
            killed[run.kill(g)] += 1
        run.go_on(10)
        steps = run.steps()
        run.check()
    print(f"{killed['worker']} workers and {killed['center']} centers killed, "
          f"{steps} steps: every difference once")


if __name__ == "__main__":
    main()
