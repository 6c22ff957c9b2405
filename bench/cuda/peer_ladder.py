"""PyTorch's side of the ladder of kernels.

Reads one rung a line on stdin, as ladder.py writes it (JSON), and answers with
the microseconds of the same operator, or `error: reason`. On a card repetitions
are one CUDA graph, as on our side; on the CPU (to try this) they are a loop. An
operator that is not a line or two of PyTorch has no peer here.
"""

import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

from peer_cuda import CUDA, DEVICE, set_precision, wait

aten = torch.ops.aten
REPEATS, ROUNDS, MAX_LAUNCHES = 32 if CUDA else 1, 3, 500
RELU = 1  # of attr.act
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16,
         "int32": torch.int32, "int64": torch.int64, "uint8": torch.uint8}
TABLES, ROWS, DIM = 8, 100000, 32


class Rung:
    """Inputs and attributes of a call, as PyTorch has them."""

    def __init__(self, told):
        self.op, self.name = told["op"], told["name"]
        self.ins = [self.parse(t) for t in told["in"].split()]
        self.outs = [self.parse(t) for t in told["out"].split()]
        self.attr = {}
        for word in told["attr"].split():
            key, _, value = word.partition("=")
            self.attr[key] = [int(v) for v in value.split(",")]
        self.bytes, self.flop = told["bytes"], told["flop"]

    @staticmethod
    def parse(text):
        if text == "-":
            return None
        dtype, _, dims = text.partition("[")
        dims = [int(d) for d in dims.rstrip("]").split(",") if d]
        return TYPES[dtype], dims

    def given(self, i):
        return i < len(self.ins) and self.ins[i] is not None

    def tensor(self, at, dtype=None, below=0):
        dtype, dims = dtype or at[0], at[1]
        if dtype.is_floating_point:
            return torch.randn(dims, device=DEVICE).to(dtype)
        return torch.randint(below, dims, device=DEVICE, dtype=dtype)

    def input(self, i, **more):
        return self.tensor(self.ins[i], **more)

    def image(self, at):
        """[N,H,W,C] as PyTorch's channels_last."""
        return self.tensor(at).permute(0, 3, 1, 2)

    def filters(self, at):
        """[H,W,I,O] likewise."""
        return self.tensor(at).permute(3, 2, 0, 1).contiguous(
            memory_format=torch.channels_last)

    def one(self, key):
        return self.attr[key][0]

    def act(self, y):
        return torch.relu_(y) if self.one("act") == RELU else y

    def padding(self):
        top, bottom, left, right = self.attr["pad"]
        if top != bottom or left != right:
            raise KeyError("uneven padding")
        return [top, left]


# ---- operators --------------------------------------------------------------------

def dense(r):
    x = r.input(0)
    w = r.tensor((x.dtype, r.ins[1][1][::-1]))
    b = r.input(2, dtype=x.dtype) if r.given(2) else None
    return lambda: r.act(F.linear(x, w, b))


def matmul(r):
    a, b = r.input(0), r.input(1)
    a = a.mT if r.one("trans_a") else a
    b = b.mT if r.one("trans_b") else b
    return lambda: torch.matmul(a, b)


def act_bias_grad(r):
    dy, y = r.input(0), r.input(1)
    axes = list(range(dy.dim() - 1))
    return lambda: aten.threshold_backward(dy, y, 0).sum(axes)


def sum_to(r):
    x, axes = r.input(0), list(range(len(r.ins[0][1]) - 1))
    return lambda: x.sum(axes) if axes else x.sum()


def conv2d(r):
    x, w = r.image(r.ins[0]), r.filters(r.ins[1])
    b = r.input(2, dtype=x.dtype) if r.given(2) else None
    stride, padding = r.attr["stride"], r.padding()
    return lambda: r.act(F.conv2d(x, w, b, stride, padding))


def conv_grad(r, x, w, dz, wanted):
    stride, padding = r.attr["stride"], r.padding()
    return lambda: aten.convolution_backward(
        dz, x, w, None, stride, padding, [1, 1], False, [0, 0], 1, wanted)


def conv2d_grad_input(r):
    x = (r.ins[0][0], r.outs[0][1])
    return conv_grad(r, r.image(x), r.filters(r.ins[1]), r.image(r.ins[0]),
                     [True, False, False])


def conv2d_grad_filter(r):
    w = (r.ins[0][0], r.outs[0][1])
    return conv_grad(r, r.image(r.ins[0]), r.filters(w), r.image(r.ins[1]),
                     [False, True, False])


def max_pool(r):
    x = r.image(r.ins[0])
    size, stride, padding = r.attr["ksize"], r.attr["stride"], r.padding()
    return lambda: F.max_pool2d(x, size, stride, padding, return_indices=True)


def max_pool_grad(r):
    x, dy = r.image(r.outs[0]), r.image(r.ins[0])
    size, stride, padding = r.attr["ksize"], r.attr["stride"], r.padding()
    _, at = F.max_pool2d(x, size, stride, padding, return_indices=True)
    return lambda: aten.max_pool2d_with_indices_backward(
        dy, x, size, stride, padding, [1, 1], False, at)


def global_avg_pool(r):
    x = r.image(r.ins[0])
    return lambda: x.mean((2, 3))


def batch_norm(r):
    x, gamma, beta = r.image(r.ins[0]), r.input(1), r.input(2)
    more = r.image(r.ins[3]) if r.given(3) else 0

    def go():
        y = F.batch_norm(x, None, None, gamma, beta, True)
        return r.act(y + more if r.given(3) else y)
    return go


def batch_norm_grad(r):
    dy, x, gamma = r.image(r.ins[0]), r.image(r.ins[1]), r.input(2)
    y = r.image(r.ins[5]) if r.given(5) else None
    mean, rstd = r.input(3), r.input(4).abs()

    def go():
        dz = aten.threshold_backward(dy, y, 0) if y is not None else dy
        return aten.native_batch_norm_backward(
            dz, x, gamma, None, None, mean, rstd, True, 1e-5, [True] * 3)
    return go


def sparse_softmax_xent(r):
    """With its gradient, which ours has as well."""
    x = r.input(0).requires_grad_()
    labels = torch.randint(r.ins[0][1][1], r.ins[1][1], device=DEVICE)
    return lambda: torch.autograd.grad(
        F.cross_entropy(x, labels, reduction="sum"), x)


def embedding_bag(r):
    table = r.input(0)
    ids = r.input(1, below=len(table)).long()
    return lambda: F.embedding_bag(ids, table, mode="sum")


def concat(r):
    parts = [r.input(i) for i in range(len(r.ins))]
    return lambda: torch.cat(parts, 1)


def part(r):
    x = r.input(0)[tuple(slice(0, n) for n in r.outs[0][1])]
    return x.contiguous if not x.is_contiguous() else x.clone


def reduce(r):
    x = r.input(0)
    return lambda: x.mean()


def cast(r):
    x = r.input(0)
    return lambda: x.to(r.outs[0][0])


# ---- vectors ----------------------------------------------------------------------

def vector(r):
    return torch.zeros(int(r.name), device=DEVICE)


def stepping(cls, r, **more):
    p = vector(r).requires_grad_()
    p.grad = vector(r)
    return cls([p], lr=1e-3, fused=True, **more).step


def adam(r):
    return stepping(torch.optim.Adam, r, **(
        {"capturable": True} if CUDA else {}))


def momentum(r):
    return stepping(torch.optim.SGD, r, momentum=0.9)


def norm(r):
    g = vector(r)
    return lambda: torch.linalg.vector_norm(g).item()


def exchange(r):
    x, c = vector(r), vector(r)

    def go():
        d = (x - c).mul_(0.1)
        x.sub_(d)
        c.add_(d)
    return go


def lazy_adam(r):
    count = int(r.name.split()[0])
    ids = (torch.arange(count) * 7919 % ROWS).sort().values.to(DEVICE)
    tables = [torch.zeros(ROWS, DIM, device=DEVICE).requires_grad_()
              for _ in range(TABLES)]
    for t in tables:
        t.grad = torch.sparse_coo_tensor(
            ids[None], torch.zeros(count, DIM, device=DEVICE), t.shape,
            is_coalesced=True)
    return torch.optim.SparseAdam(tables, lr=1e-3).step


OPS = {f.__name__: f for f in (
    dense, matmul, act_bias_grad, sum_to, conv2d, conv2d_grad_input,
    conv2d_grad_filter, max_pool, max_pool_grad, global_avg_pool, batch_norm,
    batch_norm_grad, sparse_softmax_xent, embedding_bag, concat, reduce, cast,
    adam, momentum, norm, exchange, lazy_adam)}
OPS["slice"] = part
WAITS = ("norm", "lazy_adam")  # for the card: no graph has them


# ---- time -------------------------------------------------------------------------

def captured(go):
    """REPEATS of it as one graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            go()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            go()
    return graph.replay


def round_us(go, times):
    wait()
    start = time.perf_counter()
    for _ in range(times):
        go()
    wait()
    return (time.perf_counter() - start) * 1e6 / times


def time_of(go, ms):
    for _ in range(2):
        first = round_us(go, 1)
    times = int(min(max(ms * 1e3 / ROUNDS / first, 1), MAX_LAUNCHES))
    return statistics.median(round_us(go, times) for _ in range(ROUNDS))


def answer(told):
    if told["op"] not in OPS:
        return "error: no peer"
    set_precision(told["precision"])
    go = OPS[told["op"]](Rung(told))
    if not CUDA or told["op"] in WAITS:
        return "%.4f" % time_of(go, told["ms"])
    return "%.4f" % (time_of(captured(go), told["ms"]) / REPEATS)


def main():
    if not CUDA:
        torch.set_num_threads(1)
    for told in sys.stdin:
        try:
            print(answer(json.loads(told)), flush=True)
        except Exception as e:  # one rung less, whatever it was
            print("error: %s" % str(e).replace("\n", " ")[:200], flush=True)


if __name__ == "__main__":
    main()
