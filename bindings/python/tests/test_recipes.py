"""What the recipes for Lightning, Transformers and Keras promise beside a good
model: replicas of DDP stay equal, workers see batches of their own."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

RECIPES = pathlib.Path(__file__).with_name("recipes.py")


def run(*command):
    done = subprocess.run(
        [sys.executable, *command], text=True, capture_output=True, timeout=400,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
             "HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu",
             "KERAS_BACKEND": "jax"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["lightning", "transformers"])
def test_ranks_of_ddp_are_one_worker(center, kind):
    out = run("-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
              "2", str(RECIPES), kind, center.address)
    assert out.count("replicas equal batches differ") == 12, out
    assert "worker 0 has left after 12 steps" in out
    s = center.stats()
    assert s["exchanges"] == 3 and s["global_step"] == 12 and s["live"] == 0


def test_lightning_shows_a_join_that_failed():
    out = run(str(RECIPES), "lightning_alone", "127.0.0.1:1")
    assert "HookeError" in out and "127.0.0.1:1" in out, out


def test_workers_of_transformers_have_other_batches(center):
    out = run(str(RECIPES), "two_workers", center.address)
    a, b = (json.loads(line)["order"] for line in out.splitlines()
            if line.startswith('{"order"'))
    assert len(a) == len(b) == 12
    assert all(x != y for x, y in zip(a, b)), (a, b)


def test_keras_exchanges_all_variables_and_steps(center):
    found = json.loads(run(str(RECIPES), "keras",
                           center.address).splitlines()[-1])
    # Two dense layers, and four variables of batch normalization.
    assert found == {"moved": 8, "equal": 8}
    s = center.stats()
    # 96 batches: 9 exchanges of 10, and the last 6 steps.
    assert s["global_step"] == 96 and s["exchanges"] == 10, s
