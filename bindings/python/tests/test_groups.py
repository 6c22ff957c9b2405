"""DDP and FSDP2 inside of a worker, over gloo."""
import pathlib
import subprocess
import sys

import pytest

import hooke

GROUPS = pathlib.Path(__file__).with_name("groups.py")


def run(kind, tmp_path, *centers):
    started = [subprocess.Popen(
        [sys.executable, str(GROUPS), kind, str(rank), "2",
         str(tmp_path / "store"), *centers], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]
    texts = []
    for p in started:
        try:
            texts.append(p.communicate(timeout=180)[0])
        except subprocess.TimeoutExpired:
            for q in started:
                q.kill()
            pytest.fail(f"{kind} hangs: {p.communicate()[0]}")
    assert [p.returncode for p in started] == [0, 0], "\n".join(texts)
    return texts


@pytest.mark.parametrize("kind", ["ddp", "ddp-overlap"])
def test_ddp(kind, tmp_path, center):
    texts = run(kind, tmp_path, center.address)
    assert "exchanges 3" in texts[0]
    s = center.stats()
    assert s["exchanges"] == 3 and s["live"] == 0


def test_a_failure_is_everybodys(tmp_path, center):
    texts = run("ddp_failure", tmp_path, center.address)
    assert "rank 0: " in texts[0] and "127.0.0.1:1" in texts[0]
    assert "rank 0 of this worker" in texts[1]


def test_a_bare_module_needs_a_word(tmp_path, center):
    for text in run("bare", tmp_path, center.address):
        assert "torch.distributed has 2 ranks" in text
        assert "ranks is 'one'" in text
        assert "leave ranks= out" in text
        assert "ids [0, 1]" in text


def test_fsdp2(tmp_path, center):
    with hooke.start_center() as second:
        texts = run("fsdp", tmp_path, center.address, second.address)
    assert "whole ['0.bias', '0.weight', '1.weight']" in texts[0]


def test_what_is_refused(tmp_path, center):
    texts = run("refused", tmp_path, center.address)
    assert "shards of FSDP2" in texts[0].replace("\n", " ")
    assert "inside of another module" in texts[0]
