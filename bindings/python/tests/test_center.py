"""Centers in this process, and spawn."""
import logging

import numpy as np
import pytest
import workers_of_spawn as functions

import hooke


def test_methods_and_outer():
    with hooke.start_center(method="diloco", workers=1, outer={
            "type": "sgd", "learning_rate": 0.5}) as c:
        x = np.zeros(3, np.float32)
        with hooke.join(x, c.address, verbose=False) as w:
            assert w.method == "diloco" and w.period == 500
            x += 2
            w.exchange(x)
            np.testing.assert_array_equal(x, 1)  # half of the way


@pytest.mark.parametrize("options, says", [
    ({"method": "dilocko"}, "did you mean diloco"),
    ({"outer": {"type": "adamant"}}, "one of sgd"),
    ({"outer": {"rate": 1}}, "unknown option 'rate'"),
    ({"method": "agn"}, "outer"),
    ({"address": "somewhere"}, "somewhere"),
    ({"address": "*:0"}, "key"),
    ({"durability": "sometimes"}, "sometimes"),
])
def test_bad_options(options, says):
    with pytest.raises(hooke.HookeError, match=says):
        hooke.start_center(**options)


def test_after_stop():
    c = hooke.start_center()
    assert c.wait(0.05) is False
    c.stop()
    c.stop()
    with pytest.raises(hooke.HookeError, match="stopped"):
        c.stats()


def test_nothing_to_read_yet(center):
    with pytest.raises(hooke.HookeError, match="no model yet"):
        center.arrays()


def test_spawn():
    found = hooke.spawn(functions.count, workers=3, args=(4,))
    # Three workers add 1, 2 and 3 four times each, to what they found.
    assert found["x"].shape == (4,) and 1 < found["x"][0] < 24


def test_spawn_says_who_failed():
    with pytest.raises(hooke.HookeError, match="worker 1(.|\n)*cannot go on"):
        hooke.spawn(functions.fail, workers=2)
    with pytest.raises(hooke.HookeError, match="worker 0 ended with exit code "
                                               "-9"):
        hooke.spawn(functions.die, workers=1)


def test_a_worker_of_spawn_that_fails_is_told_of_at_once(tmp_path):
    class Hears(logging.Handler):
        def emit(self, record):
            if "worker 1:" in record.getMessage():
                assert "cannot go on" in record.getMessage()
                (tmp_path / "heard").touch()

    handler = Hears()
    logging.getLogger("hooke").addHandler(handler)
    try:
        with pytest.raises(hooke.HookeError, match="1 of 2 workers") as e:
            hooke.spawn(functions.fail_early, workers=2, args=(str(tmp_path),))
    finally:
        logging.getLogger("hooke").removeHandler(handler)
    assert (e.value.values["x"] == 3).all()
