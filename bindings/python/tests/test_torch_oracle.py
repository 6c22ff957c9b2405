"""A PyTorch worker and a worker in C around one center, against plain loops.

Both fit y = a . x by momentum, with the same data; the C worker's steps are the
library's own optimizer, the other's are torch.optim's.
"""
import ctypes
import threading

import numpy as np
import pytest
import torch
from torch import nn

import hooke._c as c
import hooke.torch as hooke
from hooke._errors import check
from hooke._library import library

N, STEPS, PERIOD, RATE, MOMENTUM, ALPHA = 24, 200, 10, 0.02, 0.9, 0.4
OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9


def batches(worker):
    g = np.random.default_rng(worker)
    truth = np.random.default_rng(99).standard_normal(N)
    for _ in range(STEPS):
        x = g.standard_normal((48, N)).astype(np.float32)
        yield x, (x @ truth).astype(np.float32)


def gradient(w, x, y):
    return (2 / len(y)) * x.T @ (x @ w - y)


class CWorker:
    """hk_elastic with an optimizer of the library's inside."""

    def __init__(self, address, w):
        lib, self.lib = library(), library()
        layout = hooke_layout(lib)
        co = c.hk_connect_options()
        lib.hk_connect_options_init(ctypes.byref(co), ctypes.sizeof(co))
        texts = (ctypes.c_char_p * 1)(address.encode())
        co.addresses, co.n_addresses = texts, 1
        self.center, self.inner = ctypes.c_void_p(), ctypes.c_void_p()
        self.e = ctypes.c_void_p()
        check(lib.hk_center_connect(ctypes.byref(co), layout,
                                    ctypes.byref(self.center)))
        oo = c.hk_optimizer_options()
        lib.hk_optimizer_options_init(ctypes.byref(oo), ctypes.sizeof(oo),
                                      c.HK_OPT_MOMENTUM)
        oo.learning_rate, oo.momentum, oo.threads = RATE, MOMENTUM, 1
        check(lib.hk_optimizer_create(ctypes.byref(oo), layout,
                                      ctypes.byref(self.inner)))
        eo = c.hk_elastic_options()
        lib.hk_elastic_options_init(ctypes.byref(eo), ctypes.sizeof(eo))
        eo.num_worker, eo.communication_period = 2, PERIOD
        eo.moving_rate, eo.rho = ALPHA, 0
        check(lib.hk_elastic_create(ctypes.byref(eo), self.inner, self.center,
                                    ctypes.byref(self.e)))
        info = c.hk_layout_info()
        lib.hk_layout_get_info(layout, ctypes.byref(info))
        self.x = np.zeros(info.n, np.float32)
        self.g = np.zeros(info.n_train, np.float32)
        self.x[:N] = w
        check(lib.hk_elastic_init(self.e, self.floats(self.x), 1))
        lib.hk_layout_release(layout)

    @staticmethod
    def floats(a):
        return a.ctypes.data_as(ctypes.POINTER(ctypes.c_float))

    def step(self, x, y):
        self.g[:N] = gradient(self.x[:N], x, y)
        view = c.hk_grad_view(dense=self.floats(self.g), n_dense=self.g.size,
                              scale=1.0)
        check(self.lib.hk_elastic_apply(self.e, self.floats(self.x),
                                        ctypes.byref(view), None))

    def close(self):
        self.lib.hk_elastic_leave(self.e, self.floats(self.x))
        self.lib.hk_elastic_destroy(self.e)
        self.lib.hk_optimizer_destroy(self.inner)
        self.lib.hk_center_destroy(self.center)


def hooke_layout(lib):
    """The layout of nn.Linear(N, 1, bias=False)."""
    item = c.hk_layout_item(name=b"weight", dtype=c.HK_F32, kind=c.HK_TRAINABLE)
    item.shape.rank = 2
    item.shape.dim[0], item.shape.dim[1] = 1, N
    out = ctypes.c_void_p()
    check(lib.hk_layout_create(ctypes.byref(item), 1, ctypes.byref(out)))
    return out


class TorchSide:
    def __init__(self, address, w):
        self.model = nn.Linear(N, 1, bias=False)
        with torch.no_grad():
            self.model.weight.copy_(torch.from_numpy(w))
        self.opt = torch.optim.SGD(self.model.parameters(), RATE,
                                   momentum=MOMENTUM)
        self.w = hooke.join(self.model, self.opt, center=address, period=PERIOD,
                            moving_rate=ALPHA, worker=0, overlap_steps=0,
                            verbose=False)

    def step(self, x, y):
        out = self.model(torch.from_numpy(x)).squeeze(1)
        (out - torch.from_numpy(y)).square().mean().backward()
        self.opt.step()
        self.opt.zero_grad()

    @property
    def x(self):
        return self.model.weight.detach().numpy().reshape(-1)


def oracle(method, start):
    """The formulas in double precision."""
    w = [start.astype(np.float64) for _ in range(2)]
    v = [np.zeros(N) for _ in range(2)]
    center, m = start.astype(np.float64), np.zeros(N)
    for step, pair in enumerate(zip(batches(0), batches(1)), 1):
        for i, (x, y) in enumerate(pair):
            v[i] = MOMENTUM * v[i] + gradient(w[i], x.astype(np.float64), y)
            w[i] = w[i] - RATE * v[i]
            if method == "elastic" and step % PERIOD == 0:
                d = ALPHA * (w[i] - center)
                w[i], center = w[i] - d, center + d
        if method == "diloco" and step % PERIOD == 0:
            g = center - (w[0] + w[1]) / 2
            m = OUTER_MOMENTUM * m + g
            center = center - OUTER_RATE * (g + OUTER_MOMENTUM * m)
            w = [center.copy(), center.copy()]
    return w, center


@pytest.mark.parametrize("method", ["elastic", "diloco"])
def test_both_sides_are_the_formula(method):
    start = np.random.default_rng(5).standard_normal(N).astype(np.float32)
    with hooke.start_center(method=method, workers=2) as served:
        sides = [TorchSide(served.address, start), CWorker(served.address, start)]

        def train(side, data):
            for x, y in data:
                side.step(x, y)

        if method == "elastic":  # in turns
            for a, b in zip(batches(0), batches(1)):
                sides[0].step(*a)
                sides[1].step(*b)
        else:  # a round waits for both
            threads = [threading.Thread(target=train, args=(s, batches(i)))
                       for i, s in enumerate(sides)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        center = hooke.center_state_dict(served.address)["weight"].numpy()
        found = [sides[0].x.copy(), sides[1].x[:N].copy()]
        sides[0].w.leave()
        sides[1].close()
    w, want = oracle(method, start)
    truth = np.random.default_rng(99).standard_normal(N)
    assert np.abs(want - truth).max() < 0.2  # it has learnt something
    for got, expected in zip([*found, center.reshape(-1)], [*w, want]):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)
