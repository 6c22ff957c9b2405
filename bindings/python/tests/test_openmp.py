"""One OpenMP runtime in a process, whoever comes first, and none unasked."""
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parent / "engine.py"


def runtimes(*words):
    done = subprocess.run([sys.executable, str(SCRIPT), *words], text=True,
                          capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_exchanging_loads_none():
    assert runtimes("exchange") == []


@pytest.mark.parametrize("words", [
    ("engine",), ("exchange", "engine"), ("torch", "engine"),
    ("engine", "torch"), ("torch", "exchange", "engine"),
    ("exchange", "engine", "torch")], ids=" ".join)
def test_whoever_computes_shares_one(words):
    found = runtimes(*words)
    assert len(found) == 1, found


def test_the_check_sees_a_second_one(python, tmp_path):
    """A file of another name is counted: the tests above can fail."""
    python("import sys; sys.path.insert(0, sys.argv[1])\n"
           "import ctypes, shutil, engine\n"
           "engine.engine()\n"
           "other = sys.argv[2] + '/libgomp-a34b3233.so.1'\n"
           "shutil.copy(engine.openmp_runtimes()[0], other)\n"
           "ctypes.CDLL(other)\n"
           "assert len(engine.openmp_runtimes()) == 2",
           SCRIPT.parent, tmp_path)
