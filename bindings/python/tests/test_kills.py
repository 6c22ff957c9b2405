"""A short run of kill_workers.py; `make kill-test-python` is the long one."""
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).with_name("kill_workers.py")


def test_every_difference_once():
    done = subprocess.run([sys.executable, str(SCRIPT), "--kills", "8",
                           "--workers", "2"], text=True, capture_output=True,
                          timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every difference once" in done.stdout
