"""Checkpoints as dicts of arrays."""
from __future__ import annotations

import ctypes
import os
import re
from typing import Any, Iterator, Mapping, Optional, Union

import numpy as np

from . import _c
from ._errors import HookeError, check
from ._exchange import array_at, shape_of
from ._library import library
from ._observe import center_arrays, model_state
from ._options import KeyLike

_CENTER = re.compile(r"center(?:-(\d+))?\.bin")
_ANYWHERE = re.compile(r"^(?:tcp:)?(?:\*|0\.0\.0\.0|\[::\]):")
Path = Union[str, "os.PathLike[str]"]
_TYPES = {np.dtype(np.float32): _c.HK_F32, np.dtype(np.float64): _c.HK_F64,
          np.dtype(np.int32): _c.HK_I32, np.dtype(np.int64): _c.HK_I64,
          np.dtype(np.uint8): _c.HK_U8, np.dtype(np.bool_): _c.HK_BOOL}


def load(path: Path, *, everything: bool = False, key: Optional[KeyLike] = None,
         insecure: bool = False, seconds: float = 60.0,
         max_bytes: Optional[int] = None
         ) -> "dict[str, np.ndarray[Any, Any]]":
    """The tensors of a checkpoint as NumPy arrays.

    path        a safetensors file or its index of shards, an .npz, the prefix
                of a TensorFlow checkpoint, a center file, or a model_dir. If a
                center runs in the model_dir, its values are copied (``key``,
                ``insecure`` and ``seconds`` are those of ``center_arrays``).
                Otherwise the center files of all shards are read, or the
                newest complete checkpoint if it has more steps
    everything  also returns optimizer slots and counters
    max_bytes   limit for the arrays of a compressed .npz in memory; default:
                1 GiB, or 100 times the size of the file

    bfloat16 and float16 become float32; ``hooke.torch.load`` keeps bfloat16.
    """
    return {name: array for name, _, array in read(
        path, everything, key=key, insecure=insecure, seconds=seconds,
        max_bytes=max_bytes)}


def read(path: Path, everything: bool, *, key: Optional[KeyLike] = None,
         insecure: bool = False, seconds: float = 60.0,
         max_bytes: Optional[int] = None
         ) -> "Iterator[tuple[str, str, np.ndarray[Any, Any]]]":
    """Names, types as the file has them, and arrays."""
    centers = _center_files(path)
    if not centers:
        yield from _read_file(path, everything, max_bytes)
        return
    try:
        step = _step(centers[0])
    except HookeError as error:
        if error.status == "HK_E_EXISTS":  # a center has it
            found = center_arrays(_addresses(centers[0]), key, insecure=insecure,
                                  seconds=seconds, everything=everything)
            yield from ((n, "F32", a) for n, a in found.items())
            return
        if error.status != "HK_E_STATE":  # a center file without values
            raise
        step = -1
    try:
        newer = _step(path) >= step
    except HookeError:
        if step < 0:
            raise
        newer = False
    yield from _read_file(path if newer else centers[0], everything)


def _center_files(path: Path) -> list[str]:
    """The center files of a model_dir, that of the first shard first."""
    folder = os.fsdecode(path)
    if not os.path.isdir(folder):
        return []
    found = [(int(m.group(1) or 0), os.path.join(folder, m.group()))
             for m in map(_CENTER.fullmatch, os.listdir(folder)) if m]
    return [name for _, name in sorted(found)]


def _addresses(path: str) -> list[str]:
    """Where the center that has this file is reached from this host."""
    try:
        with open(path + ".address", encoding="utf-8") as f:
            lines = f.read().split()
    except OSError as error:
        raise HookeError(
            f"{path}: a running center uses this file, and the file with its "
            f"address cannot be read ({error}); read the center with "
            "center_arrays or center_state_dict", "HK_E_UNAVAILABLE") from error
    return [_ANYWHERE.sub("tcp:127.0.0.1:", a) for a in lines]


def _open(path: Path) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    check(library().hk_weights_open(os.fsencode(path), ctypes.byref(handle)))
    return handle


def _step(path: Path) -> int:
    """The global step of a checkpoint or a center file; 0: it does not say."""
    lib, handle = library(), _open(path)
    try:
        text = lib.hk_ckpt_meta(handle, b"hooke.step")
        if text is not None:
            return int(text)
        e = lib.hk_ckpt_find(handle, (_c.HK_SECTION + "run/global_step").encode())
        return int(_read_one(handle, e.contents)) if e else 0
    finally:
        lib.hk_ckpt_close(handle)


def _check_size(path: Path, handle: ctypes.c_void_p, info: _c.hk_ckpt_info,
                max_bytes: Optional[int]) -> None:
    """A few megabytes of a compressed archive can say gigabytes of zeros."""
    if info.format != _c.HK_CKPT_NPZ:
        return
    if max_bytes is None:
        max_bytes = max(1 << 30, 100 * os.path.getsize(path))
    size = sum(library().hk_ckpt_item(handle, i).contents.bytes
               for i in range(info.entry_count))
    if size > max_bytes:
        raise HookeError(f"{os.fsdecode(path)}: the arrays need {size} bytes "
                         f"of memory, more than max_bytes ({max_bytes}); set "
                         "a larger max_bytes if you trust the file",
                         "HK_E_RANGE")


def _read_file(path: Path, everything: bool, max_bytes: Optional[int] = None
               ) -> "Iterator[tuple[str, str, np.ndarray[Any, Any]]]":
    lib, handle = library(), _open(path)
    kinds, found = {}, {}
    try:
        info = _c.hk_ckpt_info()
        check(lib.hk_ckpt_get_info(handle, ctypes.byref(info)))
        _check_size(path, handle, info, max_bytes)
        for i in range(info.entry_count):
            e = lib.hk_ckpt_item(handle, i).contents
            name = e.name.decode()
            if not everything and name.startswith(_c.HK_SECTION):
                continue
            kinds[name] = e.type_name.decode()
            found[name] = _read_one(handle, e)
    finally:
        lib.hk_ckpt_close(handle)
    out = found if everything else model_state(found)
    for name, array in out.items():
        yield name, kinds.get(name, ""), array


def _read_one(handle: ctypes.c_void_p, e: _c.hk_ckpt_entry
              ) -> "np.ndarray[Any, Any]":
    lib, tensor = library(), ctypes.c_void_p()
    check(lib.hk_ckpt_read_tensor(handle, e.name, ctypes.byref(tensor)))
    try:
        kind = lib.hk_tensor_dtype(tensor)
        shape = lib.hk_tensor_shape(tensor)
        if kind == _c.HK_STRING:
            return _strings(tensor, tuple(shape.dim[:shape.rank]))
        if kind == _c.HK_BF16:
            wide = ctypes.c_void_p()
            check(lib.hk_tensor_copy(tensor, _c.HK_F32, ctypes.byref(wide)))
            lib.hk_tensor_release(tensor)
            tensor, kind = wide, _c.HK_F32
        return array_at(lib.hk_tensor_data(tensor), kind, shape).copy()
    finally:
        lib.hk_tensor_release(tensor)


def _strings(tensor: ctypes.c_void_p, dims: tuple[int, ...]
             ) -> "np.ndarray[Any, Any]":
    lib = library()
    out = np.empty(int(np.prod(dims, dtype=np.int64)), object)
    data, size = ctypes.c_void_p(), ctypes.c_size_t()
    for i in range(out.size):
        check(lib.hk_tensor_get_string(tensor, i, ctypes.byref(data),
                                       ctypes.byref(size)))
        out[i] = ctypes.string_at(data, size.value) if size.value else b""
    return out.reshape(dims)


class _Map:
    """A name map over arrays."""

    def __init__(self, arrays: "Mapping[str, np.ndarray[Any, Any]]",
                 bf16: Optional[set[str]] = None) -> None:
        self.handle = ctypes.c_void_p()
        check(library().hk_name_map_create(ctypes.byref(self.handle)))
        self._keep: list[Any] = []
        try:
            for name, a in arrays.items():
                self._add(name, a, bf16 is not None and name in bf16)
        except BaseException:
            self.close()
            raise

    def _add(self, name: str, a: "np.ndarray[Any, Any]", bf16: bool) -> None:
        kind = _c.HK_BF16 if bf16 else _TYPES.get(a.dtype)
        if kind is None and a.dtype.kind in "fiu":  # the nearest that holds it
            wider = {"f": np.float32, "i": np.int32, "u": np.int64}
            if a.dtype.itemsize <= 4:
                a = a.astype(wider[a.dtype.kind])
                kind = _TYPES[a.dtype]
        if kind is None:
            raise HookeError(f"{name} is of type {a.dtype}, which checkpoints "
                             "cannot store")
        a = np.ascontiguousarray(a).reshape(a.shape)
        item = _c.hk_named(name=name.encode(), dtype=kind,
                           shape=shape_of(a.shape), data=a.ctypes.data)
        self._keep.append(a)
        check(library().hk_name_map_add(self.handle, ctypes.byref(item)))

    def close(self) -> None:
        library().hk_name_map_destroy(self.handle)
        self.handle = ctypes.c_void_p()


def save(path: Path, arrays: Mapping[str, Any],
         metadata: Optional[Mapping[str, str]] = None) -> None:
    """Writes named arrays to a .safetensors or .npz file, by the end of the
    path. After a crash the file is either complete or unchanged."""
    write(path, {n: np.asarray(a) for n, a in arrays.items()}, None, metadata)


def write(path: Path, arrays: "Mapping[str, np.ndarray[Any, Any]]",
          bf16: Optional[set[str]],
          metadata: Optional[Mapping[str, str]] = None) -> None:
    """bf16: names whose arrays hold the 16 bits of bfloat16."""
    lib, o = library(), _c.hk_write_options()
    lib.hk_write_options_init(ctypes.byref(o), ctypes.sizeof(o))
    metas = (_c.hk_meta * len(metadata or ()))()
    for meta, (k, v) in zip(metas, (metadata or {}).items()):
        meta.key, meta.value = k.encode(), v.encode()
    o.meta, o.n_meta = metas, len(metas)
    names = _Map(arrays, bf16)
    try:
        check(lib.hk_ckpt_write(os.fsencode(path), names.handle,
                                ctypes.byref(o)))
    finally:
        names.close()
