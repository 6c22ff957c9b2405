"""The problems on which time and examples to a score are measured.

`Problem.train` runs `hooke train` on one and says when its center and its
average reached the score; both benches (run_accuracy.py: seconds,
run_rates.py: examples) are built on it.
"""

import collections
import os
import shutil
import signal
import subprocess
import tempfile
import time

import events

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
FASHION = {"data.%s.%s" % (part, key): "fashion-mnist/%s-%s-ubyte.gz" % names
           for part, stem in (("train", "train"), ("eval", "t10k"))
           for key, names in (("files", (stem, "images-idx3")),
                              ("labels", (stem, "labels-idx1")))}


def await_training(child, folder):
    """The time at which a run opened its event file: it begins to train."""
    while child.poll() is None:
        if any("tfevents" in name for name in os.listdir(folder)):
            break
        time.sleep(0.002)
    return time.time()


class Problem(collections.namedtuple("Problem", [
        "experiment", "target", "every", "most", "rate", "batch", "metric",
        "sets"], defaults=(64, "accuracy", {}))):
    """A score to reach: examples between evaluations, and at most; the
    learning rate that the experiment file has."""

    def command(self, hooke, data, workers, seed, folder, more):
        steps = max(1, self.every // (self.batch * workers))
        sets = {**self.sets, "run.eval_steps": steps, "run.seed": seed,
                "run.steps": self.most // (self.batch * workers),
                "run.save_seconds": 100000, **more}
        words = [hooke, "train", self.experiment, "--data-dir", data,
                 "--workers", str(workers), "-d", folder, "-q"]
        for key, value in sets.items():
            words += ["--set", "%s=%s" % (key, value)]
        return words

    def tags(self):
        return (("raw", self.metric), ("ema", self.metric + "/ema"))

    def read(self, folder, began, target):
        """Evaluations so far: {"raw": {"best":, "seconds":, "examples":}}."""
        evals = events.scalars(os.path.join(folder, "eval"))
        found = {}
        for name, tag in self.tags():
            points = [e for e in evals if e[2] == tag]
            found[name] = {"best": round(max((e[3] for e in points),
                                             default=0), 4)}
            hit = next((e for e in points if e[3] >= target), None)
            if hit is not None:
                found[name].update(seconds=round(hit[0] - began, 3),
                                   examples=hit[1] * self.batch)
        last = max(((e[1], e[0]) for e in evals), default=(0, began))
        found["examples"] = last[0] * self.batch
        found["seconds"] = round(last[1] - began, 3)
        return found

    def train(self, hooke, data, workers, seed, more=(), target=None,
              limit=None, core=None):
        """Ends once center or average has the score, or at the limit.

        Given a core, the run stays on it and ends by itself, where an
        evaluation of the average has the score; otherwise it is ended from
        outside, since a run that stops for a score waits for evaluations.
        """
        target = self.target if target is None else target
        folder = tempfile.mkdtemp(prefix="hooke-problem-")
        more = dict(more)
        if core is not None:
            more["run.stop_metric"] = "%s/ema>%.7f" % (self.metric,
                                                       target - 1e-6)
        words = self.command(hooke, data, workers, seed, folder, more)
        with open(os.path.join(folder, "stderr"), "w", encoding="utf-8") as f:
            child = subprocess.Popen(
                words, stdout=subprocess.DEVNULL, stderr=f, preexec_fn=core
                is not None and (lambda: os.sched_setaffinity(0, {core}))
                or None)
        end = time.monotonic() + (limit or 1e9)
        began = await_training(child, folder)
        while child.poll() is None and time.monotonic() < end:
            time.sleep(0.25)
            if core is None and reached(self.read(folder, began, target),
                                        "seconds"):
                break
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        failed = child.wait() not in (0, -signal.SIGKILL)
        found = self.read(folder, began, target)
        if failed:
            with open(os.path.join(folder, "stderr"), encoding="utf-8") as f:
                found["error"] = f.read()[-300:]
        shutil.rmtree(folder)
        return {"workers": workers, "seed": seed, "target": target, **found}


# Those of the mlp and of tables are small enough for grids on few cores.
PROBLEMS = {
    "mnist": Problem("mnist-mlp", 0.984, 12800, 1200000, 0.05),
    "mnist-cnn": Problem("mnist", 0.99, 12800, 600000, 0.001),
    "fashion-mlp": Problem("mnist-mlp", 0.88, 12800, 1200000, 0.05,
                           sets=FASHION),
    "fashion": Problem("fashion-mnist", 0.915, 25600, 6000000, 0.001),
    "cifar": Problem("cifar10-jpeg", 0.68, 25600, 3000000, 0.007, 32),
    "digits-cnn": Problem("digits-cnn", 0.985, 6400, 800000, 0.002),
    "digits": Problem("digits", 0.97, 6400, 800000, 0.05),
    "adult": Problem("adult", 0.910, 3200, 800000, 0.004, 128, "auc"),
}


def reached(line, what):
    """The better of raw and averaged weights; None: not reached."""
    found = [line[k][what] for k in ("raw", "ema") if what in line.get(k, {})]
    return min(found) if found else None
