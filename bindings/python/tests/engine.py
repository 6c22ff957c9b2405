"""Computes with the engine, with PyTorch, or exchanges, and counts OpenMP.

    engine.py WORD...    torch, engine, exchange: done in this order, then again

Prints the OpenMP runtimes that the process has in the end, a line each. Needs
nothing but the package, so that it also tests an installed one.
"""
from __future__ import annotations

import ctypes
import os
import re
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p

import numpy as np

N = 384  # enough work for two threads
PREDICT = 3


def openmp_runtimes() -> list[str]:
    """The files of OpenMP runtimes that are mapped into this process."""
    with open("/proc/self/maps", encoding="utf-8") as f:
        files = {line.split(maxsplit=5)[5].strip() for line in f
                 if line.count("/")}
    return sorted(f for f in files if re.match(
        r"lib(gomp|omp|iomp5)\b", os.path.basename(f)))


class PlanOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("batch", ctypes.c_int64),
                ("threads", ctypes.c_uint32), ("no_fusion", ctypes.c_uint32),
                ("backend", c_char_p), ("float_type", c_int),
                ("thread_limit", ctypes.c_uint32)]


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """relu(a b) by the engine, on two threads."""
    from hooke import _c
    from hooke._library import library
    lib = library()
    raw = ctypes.CDLL(lib.path)

    def check(status: int) -> None:
        assert status == 0, lib.hk_last_error().decode()

    def node(name: str, *args: object) -> c_void_p:
        function = getattr(raw, name)
        function.restype = c_void_p
        return c_void_p(function(*args))

    ctx, graph, plan, session = (c_void_p() for _ in range(4))
    check(lib.hk_context_create(None, byref(ctx)))
    check(raw.hk_graph_create(ctx, PREDICT, None, byref(graph)))
    inputs = [node("hk_input", graph, name, c_int(_c.HK_F32),
                   _c.hk_shape(2, 0, (N, N))) for name in (b"a", b"b")]
    y = node("hk_relu", graph, node("hk_matmul", graph, *inputs, 0, 0))
    raw.hk_output(graph, b"y", y)
    options = PlanOptions()
    raw.hk_plan_options_init(byref(options), c_size_t(ctypes.sizeof(options)))
    options.threads = 2
    check(raw.hk_plan_create(graph, byref(options), byref(plan)))
    check(raw.hk_session_create(plan, None, byref(session)))

    def floats(get: str, name: bytes) -> np.ndarray:
        tensor = c_void_p()
        check(getattr(raw, get)(session, name, byref(tensor)))
        data = ctypes.cast(lib.hk_tensor_data(tensor), POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(data, (N, N))

    floats("hk_session_input", b"a")[:] = a
    floats("hk_session_input", b"b")[:] = b
    check(raw.hk_session_run(session))
    result = floats("hk_session_output", b"y").copy()
    raw.hk_session_destroy(session)
    raw.hk_plan_release(plan)
    raw.hk_graph_destroy(graph)
    lib.hk_context_destroy(ctx)
    return result


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, N, N), dtype=np.float32)
    return a, b, np.maximum(a.astype(np.float64) @ b.astype(np.float64), 0)


def engine() -> None:
    a, b, y = operands()
    assert np.abs(product(a, b) - y).max() < 1e-3


def torch() -> None:
    import torch as framework
    framework.set_num_threads(2)
    a, b, y = operands()
    with framework.no_grad():
        got = framework.relu(framework.from_numpy(a) @ framework.from_numpy(b))
        # Element-wise work over the runtime's threads.
        assert framework.ones(1 << 22).add_(1).sum().item() == 1 << 23
    assert np.abs(got.numpy() - y).max() < 1e-3


def exchange() -> None:
    import hooke
    x = np.ones(100_000, np.float32)
    with hooke.start_center() as center, \
            hooke.join(x, center.address, moving_rate=0.25, verbose=False) as w:
        x += 1
        w.exchange(x)
        assert (x == 1.75).all()


if __name__ == "__main__":
    for word in sys.argv[1:] * 2:
        {"engine": engine, "torch": torch, "exchange": exchange}[word]()
    print("\n".join(openmp_runtimes()))
