"""What the tests share: a center, short waits, a second process."""
import os
import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
ROOT = PACKAGE.parents[1]
# The package as it lies here, also in the processes that tests start.
sys.path.insert(0, str(PACKAGE))
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(PACKAGE), str(PACKAGE / "tests")]
    + [p for p in [os.environ.get("PYTHONPATH")] if p])
for name in "HOOKE_CENTER", "HOOKE_WORKERS", "HOOKE_INDEX", "HOOKE_KEY":
    os.environ.pop(name, None)

import hooke  # noqa: E402


@pytest.fixture
def center():
    """An elastic center in this process."""
    with hooke.start_center() as c:
        yield c


@pytest.fixture
def python():
    """Runs a script in a process of its own; gives what it printed."""
    def run(script, *args, timeout=120, code=0, **env):
        done = subprocess.run(
            [sys.executable, "-c", script, *map(str, args)], text=True,
            capture_output=True, timeout=timeout, env={**os.environ, **env})
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout
    return run
