"""The generated mirrors against the headers and against the compiler."""
import ctypes
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

import hooke._c as c
from hooke._library import library

TOOL = ROOT / "tools" / "make_ctypes.py"


def test_generated_file_is_current():
    done = subprocess.run([sys.executable, str(TOOL), "--check"], text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_sizes_offsets_and_values(tmp_path):
    source, program = tmp_path / "probe.c", tmp_path / "probe"
    subprocess.run([sys.executable, str(TOOL), "--probe", str(source)],
                   check=True)
    subprocess.run(["cc", "-I", str(ROOT / "include"), str(source), "-o",
                    str(program)], check=True)
    lines = subprocess.run([str(program)], check=True, text=True,
                           capture_output=True).stdout.splitlines()
    assert len(lines) > 400
    for line in lines:
        name, *numbers = line.split()
        if "." in name:
            struct, field = name.split(".")
            place = getattr(getattr(c, struct), field)
            assert [place.offset, place.size] == list(map(int, numbers)), name
        elif name.startswith("HK_"):
            assert getattr(c, name) == int(numbers[0]), name
        else:
            assert ctypes.sizeof(getattr(c, name)) == int(numbers[0]), name


def test_every_function_is_there():
    for name in c.PROTOTYPES:
        getattr(library(), name)


def test_options_keep_their_defaults():
    o = c.hk_elastic_options()
    library().hk_elastic_options_init(ctypes.byref(o), ctypes.sizeof(o))
    assert o.struct_size == ctypes.sizeof(o)
    assert o.moving_rate == c.HK_ELASTIC_AUTO and o.wait_ms == 60000
