"""The PyTorch side of the optimizer benchmark.

Answers lines `case threads iters` on stdin with one line, the milliseconds
per step, or `none` for a way that this PyTorch does not have. Cases as in
bench_optim.c, each on the same variable shapes; `case:single`, `case:foreach`
and `case:fused` name PyTorch's three ways.
"""

import sys
import time

import torch

MLP = [(784, 512), (512,), (512, 256), (256,), (256, 10), (10,)]
SIZES = {"536k": MLP, "25m": [(1000, 1000)] * 25}
TABLES, ROWS, DIM, LOOKUPS, BATCHES = 8, 100000, 32, 512, 16

RULES = {
    "adam": (torch.optim.Adam, dict(lr=1e-3)),
    "adamw": (torch.optim.AdamW, dict(lr=1e-3, weight_decay=0.01)),
    "momentum": (torch.optim.SGD, dict(lr=1e-3, momentum=0.9)),
    "rmsprop": (torch.optim.RMSprop, dict(lr=1e-3, alpha=0.9, momentum=0.9)),
    "adagrad": (torch.optim.Adagrad, dict(lr=1e-3)),
}


class Dense:
    def __init__(self, name, way):
        rule, _, size = name.rpartition("_")
        self.ema = rule == "adam_ema"
        make, options = RULES["adam" if self.ema else rule]
        self.vars = [torch.nn.Parameter(torch.randn(s) * 0.1)
                     for s in SIZES[size]]
        for v in self.vars:
            v.grad = torch.randn(v.shape) * 0.01
        ways = {"foreach": way == "foreach"}
        if way == "fused":
            ways["fused"] = True
        self.opt = make(self.vars, **ways, **options)
        self.shadow = [v.detach().clone() for v in self.vars]

    def step(self):
        self.opt.step()
        if self.ema:
            with torch.no_grad():
                torch._foreach_mul_(self.shadow, 0.9999)
                torch._foreach_add_(self.shadow, self.vars, alpha=1e-4)


class Sparse:
    def __init__(self):
        self.vars = [torch.nn.Parameter(torch.randn(ROWS, DIM) * 0.1)
                     for _ in range(TABLES)]
        rows = torch.randn(LOOKUPS, DIM) * 0.01
        self.batches = [
            [torch.sparse_coo_tensor(torch.randint(ROWS, (1, LOOKUPS)), rows,
                                     (ROWS, DIM)) for _ in self.vars]
            for _ in range(BATCHES)]
        self.opt = torch.optim.SparseAdam(self.vars, lr=1e-3)
        self.count = 0

    def step(self):
        for v, g in zip(self.vars, self.batches[self.count % BATCHES]):
            v.grad = g
        self.count += 1
        self.opt.step()


def make(name, way):
    """A case that has made its first step, or None."""
    try:
        case = Sparse() if name == "lazy_adam" else Dense(name, way)
        case.step()
        return case
    except (TypeError, RuntimeError):  # no fused form
        if way == "fused":
            return None
        raise


def main():
    base, made = None, {}
    for text in sys.stdin:
        case, threads, iters = text.split()
        torch.set_num_threads(int(threads))
        name, _, way = case.partition(":")
        if base != name:  # both ways of one case stay set up
            base, made = name, {}
        if case not in made:
            made[case] = make(name, way)
        if made[case] is None:
            print("none", flush=True)
            continue
        step = made[case].step
        start = time.perf_counter()
        for _ in range(int(iters)):
            step()
        print((time.perf_counter() - start) * 1e3 / int(iters), flush=True)


if __name__ == "__main__":
    main()
