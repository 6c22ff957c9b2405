"""What the recipes for Lightning, Transformers and Keras promise beside a good
model: replicas of DDP stay equal, workers see batches of their own."""
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
             "HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu"})
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
