"""Where library and program are looked for; the program itself."""
import subprocess
import sys


def test_a_named_library_is_the_one(python):
    python("import hooke\n"
           "try:\n"
           "    hooke.start_center()\n"
           "except ImportError as e:\n"
           "    assert 'nowhere.so' in str(e), e\n"
           "else:\n"
           "    raise SystemExit('loaded')",
           HOOKE_LIBRARY="nowhere.so")


def test_a_library_that_is_none(python, tmp_path):
    other = tmp_path / "libhooke.so"
    other.write_bytes(b"not a library")
    python("import hooke\n"
           "try:\n"
           "    hooke.start_center()\n"
           "except ImportError as e:\n"
           "    assert 'libhooke.so' in str(e), e\n"
           "else:\n"
           "    raise SystemExit('loaded')", HOOKE_LIBRARY=str(other))


def test_the_module_is_the_program():
    done = subprocess.run([sys.executable, "-m", "hooke", "--version"],
                          text=True, capture_output=True)
    assert done.returncode == 0 and done.stdout.startswith("hooke "), done
    done = subprocess.run([sys.executable, "-m", "hooke", "no-such-command"],
                          text=True, capture_output=True)
    assert done.returncode != 0 and "no-such-command" in done.stderr


def test_a_missing_program(python):
    python("import hooke.__main__ as m\n"
           "try:\n"
           "    m.main()\n"
           "except FileNotFoundError as e:\n"
           "    pass\n"
           "else:\n"
           "    raise SystemExit('ran')", HOOKE_PROGRAM="./no-such-hooke")


def test_importing_needs_neither_torch_nor_the_library(python):
    python("import sys, hooke\n"
           "assert 'torch' not in sys.modules and 'jax' not in sys.modules\n",
           HOOKE_LIBRARY="nowhere.so")


def test_messages_name_parameters_of_python():
    from hooke._errors import in_python
    assert in_python("no answer for 5 s (lost_ms)") == (
        "no answer for 5 s (lost_seconds)")
    assert in_python("elastic: num_worker is 0") == "elastic: workers is 0"
    assert in_python("connect_ms -1") == "connect_ms -1"
