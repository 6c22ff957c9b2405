"""hooke.load of a model_dir with a center: running, stopped, killed."""
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import hooke
from hooke._library import find_program

SERVE = """
import sys; import hooke
with hooke.start_center(sys.argv[2], path=sys.argv[1]):
    print("up", flush=True); sys.stdin.read()
"""


def grow(address, n, value):
    """A worker whose values go to the center as they are, with tied names."""
    import torch

    import hooke.torch as ht
    model = torch.nn.Module()
    model.a = torch.nn.Parameter(torch.full((n,), float(value)))
    model.b = model.a
    model.register_buffer("c", torch.zeros(2), persistent=False)
    ht.join(model, None, center=address, verbose=False).leave(
        last_exchange=True)


@pytest.mark.parametrize("at", ["127.0.0.1:0", "0.0.0.0:0", "unix:"])
def test_a_center_that_runs_is_asked(tmp_path, at):
    folder = tmp_path / "run"
    folder.mkdir()
    if at == "unix:":
        at += str(tmp_path / "socket")
    with hooke.start_center(at, path=folder / "center.bin",
                            insecure="0.0.0.0" in at) as center:
        address = center.address.replace("0.0.0.0", "127.0.0.1")
        x = np.ones(1000, np.float32)
        with hooke.join(x, address, insecure=True, verbose=False) as w:
            for _ in range(3):
                before = center.stats()["exchanges"]
                x += 2
                w.exchange(x)
                assert center.stats()["exchanges"] == before + 1
                found = hooke.load(folder, insecure=True)
                np.testing.assert_array_equal(found["x"], center_values(address))
        assert found["x"].max() > 2
    assert not (folder / "center.bin.address").exists()
    np.testing.assert_array_equal(hooke.load(folder)["x"], found["x"])


def center_values(address):
    return hooke.center_arrays(address, insecure=True)["x"]


def test_a_center_that_was_killed(tmp_path):
    """Its file is read into memory: it stays as it is, and so may be read by
    somebody who may not write it."""
    file = tmp_path / "center.bin"
    p = subprocess.Popen([sys.executable, "-c", SERVE, str(file),
                          f"unix:{tmp_path}/socket"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    try:
        assert p.stdout.readline() == "up\n"
        grow(f"unix:{tmp_path}/socket", 50000, 7)
    finally:
        p.send_signal(signal.SIGKILL)
        p.wait()
    assert (tmp_path / "center.bin.address").exists()
    before = file.read_bytes()
    found = hooke.load(tmp_path)
    assert sorted(found) == ["a", "b"] and (found["b"] == 7).all()
    assert "unsaved/c" in hooke.load(tmp_path, everything=True)
    assert file.read_bytes() == before
    # The newest checkpoint, if it has more steps than the center.
    hooke.save(tmp_path / "other.npz", {"a": np.zeros(2, np.float32)})
    assert (hooke.load(tmp_path)["a"] == 7).all()
    # A server that is there without an address beside its file.
    (tmp_path / "center.bin.address").unlink()
    with open(file, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(hooke.HookeError, match="a running center uses"):
            hooke.load(tmp_path)


def test_all_shards_are_read(tmp_path):
    """Files of two shards, in one folder; one of them alone is refused."""
    unix = [f"unix:{tmp_path}/{i}" for i in range(2)]
    folder = tmp_path / "run"
    folder.mkdir()
    centers = [subprocess.Popen(
        [find_program(), "center", "--center", ",".join(unix),
         "--index", str(i), "-d", str(folder if i == 0 else tmp_path / "other"),
         "--center-file", str(folder / f"center-{i}.bin"), "-q"],
        stderr=subprocess.PIPE, text=True) for i in range(2)]
    try:
        limit = time.monotonic() + 60
        while not all((folder / f"center-{i}.bin.address").exists()
                      for i in range(2)):
            assert all(p.poll() is None for p in centers), [
                p.stderr.read() for p in centers if p.poll() is not None]
            assert time.monotonic() < limit
            time.sleep(0.05)
        x = {"w": np.arange(300000, dtype=np.float32)}
        hooke.join(x, unix, verbose=False).leave()
        np.testing.assert_array_equal(hooke.load(folder)["w"], x["w"])
    finally:
        for p in centers:
            p.send_signal(signal.SIGKILL)
            p.communicate()
    np.testing.assert_array_equal(hooke.load(folder)["w"], x["w"])
    shutil.move(folder / "center-1.bin", tmp_path / "center-1.bin")
    with pytest.raises(hooke.HookeError, match="shard 1 is not in"):
        hooke.load(folder)
    assert os.listdir(folder)
