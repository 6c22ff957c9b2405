"""The examples, as a user starts them, on small data."""
import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT

EXAMPLES = ROOT / "examples" / "python"


def run(name, *args, **env):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *args], text=True,
        capture_output=True, timeout=400, cwd=EXAMPLES,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
             "HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu", **env})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def number(text, what):
    return float(re.search(what + r": (?:off by )?([\d.]+)", text).group(1))


@pytest.mark.parametrize("name, args", [
    ("torch_mnist.py", ["--workers", "2"]), ("jax_mnist.py", []),
    ("keras_mnist.py", []), ("lightning_mnist.py", [])])
def test_digits(name, args):
    out = run(name, *args, KERAS_BACKEND="jax")
    assert number(out, "center's accuracy") > 0.9, out


def test_keras_over_torch():
    out = run("keras_mnist.py", "--workers", "1", KERAS_BACKEND="torch")
    assert number(out, "center's accuracy") > 0.8, out


def test_one_worker_of_a_cluster(center):
    out = run("torch_mnist.py", "--center", center.address)
    assert "worker 0" in out and number(out, "center's accuracy") > 0.8


def test_numpy():
    out = run("numpy_worker.py")
    assert number(out, "the center") < 0.1 and "worker 1" in out


def test_transformers():
    out = run("transformers_finetune.py")
    # A guess among 64 is ln 64 = 4.16.
    assert number(out, "center's loss") < 2, out


def test_ddp(center):
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         "--nproc-per-node", "2", str(EXAMPLES / "torch_ddp.py"), "--center",
         center.address], text=True, capture_output=True, timeout=400,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worker 0" in done.stdout and center.stats()["exchanges"] > 0
