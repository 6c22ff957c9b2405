"""NumPy workers against the formulas."""
import array
import threading
import time

import numpy as np
import pytest

import hooke


def test_elastic_exchange(center):
    x = np.arange(5, dtype=np.float32)
    with hooke.join(x, center.address, moving_rate=0.25, verbose=False) as w:
        c = x.copy()
        for _ in range(4):
            x += 1
            want = x - np.float32(0.25) * (x - c)
            c = c + np.float32(0.25) * (x - c)
            w.exchange(x)
            np.testing.assert_array_equal(x, want)
        np.testing.assert_array_equal(center.arrays()["x"], c)
        s = w.stats()
        assert (s.exchanges, s.local_step, s.method) == (4, 4, "elastic")
        assert s.moving_rate == 0.25 and s.distance > 0 and s.bytes_out > 0


def test_steps_and_period(center):
    x = np.zeros(3, np.float32)
    with hooke.join(x, center.address, period=3, verbose=False) as w:
        assert [w.step(x) for _ in range(7)] == [False, False, True] * 2 + [False]
        assert w.stats().exchanges == 2
        w.exchange(x, steps=4)
        assert w.stats().local_step == 11
    assert center.stats()["global_step"] == 11


def test_any_float_buffer(center):
    x = array.array("f", [1, 2, 3])
    with hooke.join(x, center.address, verbose=False) as w:
        x[0] = 5
        w.exchange(x)
        assert list(x) == [3, 2, 3]


def test_a_second_worker_gets_the_values(center):
    x, y = np.ones(7, np.float32), np.zeros(7, np.float32)
    with hooke.join(x, center.address, verbose=False) as a, \
            hooke.join(y, center.address, verbose=False) as b:
        assert (a.id, b.id) == (0, 1)
        np.testing.assert_array_equal(y, x)


def test_named_arrays(center):
    x = {"w": np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2],
         "n": np.array([3, 4]), "scalar": np.array(2, np.float32),
         "none": np.zeros((0, 3), np.float32),
         "wide": np.array([1.5, 2.5], np.float64)}
    with hooke.join(x, center.address, verbose=False) as w:
        x["w"] += 2
        x["n"] += 1
        w.exchange(x)
        found = center.arrays()
        np.testing.assert_array_equal(found["w"], [[1, 3], [5, 7], [9, 11]])
        np.testing.assert_array_equal(found["n"], [4, 5])
        assert found["n"].dtype == np.int64 and found["scalar"].shape == ()
        assert found["none"].shape == (0, 3)
        np.testing.assert_array_equal(found["wide"], [1.5, 2.5])
        with pytest.raises(hooke.HookeError, match="other names.*extra"):
            w.exchange({**x, "extra": np.zeros(1, np.float32)})
        with pytest.raises(hooke.HookeError, match="w'] was"):
            w.exchange({**x, "w": np.zeros(3, np.float32)})


@pytest.mark.parametrize("x, says", [
    (np.zeros(3), "float64"),
    (np.zeros((4, 4), np.float32)[:, 1], "not contiguous"),
    (np.zeros(0, np.float32), "empty"),
    (b"1234", "format"),
    ({}, "no arrays"),
    ({"x": 1.5}, "is float"),
    ({"x": np.array(["a"])}, "cannot be exchanged"),
])
def test_what_cannot_be_exchanged(center, x, says):
    with pytest.raises(hooke.HookeError, match=says):
        hooke.join(x, center.address)


def test_read_only(center):
    x = np.zeros(3, np.float32)
    x.flags.writeable = False
    with pytest.raises(hooke.HookeError, match="read-only"):
        hooke.join(x, center.address)


@pytest.mark.parametrize("options, says", [
    ({"period": 0}, "period is 0"),
    ({"workers": 0}, "workers is 0"),
    ({"worker": -2}, "worker is -2"),
    ({"worker": 2**31}, "worker is 2147483648; it has to be less than"),
    ({"workers": 2**32}, "workers is 4294967296; it has to be less than"),
    ({"compression": "zip"}, "none, bf16, int8"),
    ({"method": "elastik"}, "did you mean elastic"),
    ({"method": "diloco"}, "the center has elastic"),
    ({"moving_rate": 1.5}, "moving_rate is 1.5"),
    ({"key": "/nowhere/at/all"}, "/nowhere/at/all"),
])
def test_bad_options(center, options, says):
    with pytest.raises(hooke.HookeError, match=says):
        hooke.join(np.zeros(3, np.float32), center.address, **options)
    assert center.stats()["live"] == 0


def test_no_center(monkeypatch):
    x = np.zeros(3, np.float32)
    with pytest.raises(hooke.HookeError, match="HOOKE_CENTER"):
        hooke.join(x)
    with pytest.raises(hooke.HookeError) as e:
        hooke.join(x, "127.0.0.1:1", connect_seconds=0.2)
    assert e.value.status == "HK_E_UNAVAILABLE"
    with hooke.start_center() as c:
        monkeypatch.setenv("HOOKE_CENTER", c.address)
        hooke.join(x, verbose=False).leave()


def test_a_list_is_no_buffer(center):
    with pytest.raises(hooke.HookeError, match="list, not a float32 buffer"):
        hooke.join([np.zeros(3, np.float32)], center.address)


def test_stats_after_leaving(center):
    x = np.zeros(3, np.float32)
    with hooke.join(x, center.address, verbose=False) as w:
        w.exchange(x)
    assert w.stats().exchanges == 1 and w.stats().local_step == 1


def test_stats_do_not_wait_for_an_exchange():
    """A worker waits in a round whose other member makes no step."""
    with hooke.start_center(method="local_sgd", workers=2) as center:
        x, y = np.zeros(3, np.float32), np.zeros(3, np.float32)
        with hooke.join(x, center.address, wait_seconds=20, verbose=False) as w, \
                hooke.join(y, center.address, verbose=False) as other:
            thread = threading.Thread(target=w.exchange, args=(x,))
            thread.start()
            while w._exchange._thread.wait(0):
                time.sleep(0.01)
            begin = time.monotonic()
            assert w.stats().exchanges == 0
            assert time.monotonic() - begin < 10
            other.exchange(y)
            thread.join()
            assert w.stats().exchanges == 1


def test_another_model(center):
    with hooke.join(np.zeros(3, np.float32), center.address, verbose=False), \
            pytest.raises(hooke.HookeError, match="another model"):
        hooke.join(np.zeros(4, np.float32), center.address)


def test_after_leaving(center):
    x = np.zeros(3, np.float32)
    w = hooke.join(x, center.address, verbose=False)
    w.leave()
    w.leave()
    with pytest.raises(hooke.HookeError, match="has left"):
        w.exchange(x)
    with pytest.raises(hooke.HookeError, match="has left"):
        w.step(x)


def test_finish(center):
    x = np.zeros(3, np.float32)
    with hooke.join(x, center.address, verbose=False) as w:
        assert not w.finished
        w.finish("enough")
        w.exchange(x)
        assert w.finished
    assert center.wait(10)


def test_workers_in_threads(center):
    """Handles are independent: four threads, one center, nothing lost."""
    def work(i):
        x = np.zeros(1000, np.float32)
        with hooke.join(x, center.address, moving_rate=0.5, verbose=False) as w:
            together.wait(30)
            for _ in range(50):
                x += i
                w.exchange(x)
            last[i] = x.copy()

    last, together = {}, threading.Barrier(4)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    # What workers and center hold together is what the steps have added.
    total = sum(last.values()) + center.arrays()["x"]
    np.testing.assert_allclose(total, 50 * (1 + 2 + 3), rtol=1e-5)
    assert center.stats()["exchanges"] == 200


def test_compression(center):
    x = np.linspace(-1, 1, 600, dtype=np.float32)
    with hooke.join(x, center.address, compression="int8",
                    verbose=False) as w:
        for _ in range(20):
            x += np.float32(0.01)
            w.exchange(x)
        np.testing.assert_allclose(center.arrays()["x"], x, atol=0.05)


def test_keys(tmp_path):
    key, x = tmp_path / "cluster.key", np.zeros(3, np.float32)
    hooke.generate_key(key)
    assert key.stat().st_mode & 0o77 == 0
    with pytest.raises(hooke.HookeError):
        hooke.generate_key(key)
    with hooke.start_center("127.0.0.1:0", key=key) as c:
        hooke.join(x, c.address, key=key, verbose=False).leave()
        with pytest.raises(hooke.HookeError):
            hooke.join(x, c.address, connect_seconds=1)
        assert "x" in hooke.center_arrays(c.address, key)


def test_a_restarted_center(tmp_path):
    """A worker trains on while its center is away, and both meet again."""
    at, path = f"unix:{tmp_path}/c", tmp_path / "center.bin"
    x = np.zeros(4, np.float32)
    c = hooke.start_center(at, path=path)
    with hooke.join(x, at, moving_rate=0.5, verbose=False) as w:
        x += 1
        w.exchange(x)
        c.stop()
        x += 1
        w.exchange(x)  # finds nobody
        assert w.stats().missed == 1
        with hooke.start_center(at, path=path) as again:
            for _ in range(100):
                w.exchange(x)
                if w.stats().reachable:
                    break
            w.exchange(x)
            np.testing.assert_allclose(x + again.arrays()["x"], 2)
