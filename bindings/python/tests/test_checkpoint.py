"""Checkpoints: ours, and others' files."""
import zipfile

import numpy as np
import pytest
import safetensors.numpy

import hooke

ARRAYS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "d": np.array(1.5),
    "i": np.array([1, 2], np.int32),
    "l": np.array([2**40]),
    "u": np.array([0, 255], np.uint8),
    "b": np.array([True, False]),
    "empty": np.zeros((0, 2), np.float32),
}


@pytest.mark.parametrize("name", ["m.safetensors", "m.npz"])
def test_there_and_back(tmp_path, name):
    hooke.save(tmp_path / name, ARRAYS)
    found = hooke.load(tmp_path / name)
    assert found.keys() == ARRAYS.keys()
    for k, a in ARRAYS.items():
        np.testing.assert_array_equal(found[k], a)
        assert found[k].dtype == a.dtype and found[k].shape == a.shape


def test_others_read_ours(tmp_path):
    hooke.save(tmp_path / "m.safetensors", ARRAYS, {"made": "by a test"})
    theirs = safetensors.numpy.load_file(tmp_path / "m.safetensors")
    for k, a in ARRAYS.items():
        np.testing.assert_array_equal(theirs[k], a)
    hooke.save(tmp_path / "m.npz", ARRAYS)
    with np.load(tmp_path / "m.npz") as theirs:
        np.testing.assert_array_equal(theirs["w"], ARRAYS["w"])


def test_we_read_others(tmp_path):
    safetensors.numpy.save_file(
        {"h": np.array([1.5, 2.5], np.float16),
         "hooke/run/global_step": np.array(7)}, tmp_path / "t.safetensors")
    found = hooke.load(tmp_path / "t.safetensors")
    assert list(found) == ["h"] and found["h"].dtype == np.float32
    assert "hooke/run/global_step" in hooke.load(tmp_path / "t.safetensors",
                                                 everything=True)


def test_an_archive_of_zeros_is_bounded(tmp_path):
    """Deflate packs zeros to a thousandth."""
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED,
                         compresslevel=1) as z, z.open(
                             "a.npy", "w", force_zip64=True) as f:
        np.lib.format.write_array_header_1_0(f, {
            "descr": "<f4", "fortran_order": False, "shape": (5 << 26,)})
        piece = bytes(1 << 24)
        for _ in range(80):  # 1.25 GiB
            f.write(piece)
    assert (tmp_path / "bomb.npz").stat().st_size < 20 << 20
    with pytest.raises(hooke.HookeError, match="need 1342177280 bytes") as e:
        hooke.load(tmp_path / "bomb.npz")
    assert e.value.status == "HK_E_RANGE"
    np.savez_compressed(tmp_path / "small.npz", a=np.zeros(1 << 20, np.float32))
    assert hooke.load(tmp_path / "small.npz")["a"].size == 1 << 20
    with pytest.raises(hooke.HookeError, match="more than max_bytes"):
        hooke.load(tmp_path / "small.npz", max_bytes=1 << 20)


def test_errors(tmp_path):
    with pytest.raises(hooke.HookeError, match="nothing"):
        hooke.load(tmp_path / "nothing.safetensors")
    (tmp_path / "torn.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    with pytest.raises(hooke.HookeError) as e:
        hooke.load(tmp_path / "torn.safetensors")
    assert e.value.status == "HK_E_DATA"
    with pytest.raises(hooke.HookeError, match="cannot store"):
        hooke.save(tmp_path / "x.npz", {"x": np.array([1j])})
