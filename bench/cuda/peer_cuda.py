"""The PyTorch side of the benchmark on graphics cards.

Reads one command a line on stdin,

    loop case precision iters

and answers milliseconds per training step, or `error: reason`. `info` is
answered with the versions. Loops:

    still   one CUDA graph with forward, backward and optimizer, replayed; the
            batch stays on the card
    step    the same, and the batch goes up from pinned memory before each
    eager   without a graph: what the lazy optimizer of embeddings needs

    peer_cuda.py check CASE PRECISION FILE

compares loss and gradients in FILE (peer_step.py says what is in it) with
PyTorch's in double precision on the CPU, and prints a line `name error
peer_error` for each tensor: the norm of the difference over the norm of the
tensor, for FILE and for PyTorch itself on the GPU at that precision.

The recommender's tables have sparse gradients and SparseAdam in `eager`; a graph
cannot hold those, so that its graph has dense gradients and Adam over all rows.
Without a card everything runs on the CPU, without graphs: to try this.
"""

import os
import sys
import time

import numpy as np
import torch

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import peer_step

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


def wait():
    if CUDA:
        torch.cuda.synchronize()


def set_precision(name):
    """tf32 or fp32, of products and convolutions alike; bf16 by autocast,
    what is left in tf32."""
    tf32 = {"tf32": True, "fp32": False, "bf16": True}[name]
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.benchmark = True


class Runner:
    """A case on the card, ready to be stepped."""

    def __init__(self, loop, name, precision):
        bf16 = "_bf16" if precision == "bf16" else ""
        self.case = case = peer_step.Case(name + bf16)
        dense = case.rec and loop != "eager"
        if dense:
            for t in case.model.tables:
                t.sparse = False
        case.model.to(DEVICE)
        self.batch = [case.x, case.labels] + ([case.ids] if case.rec else [])
        if CUDA:
            self.batch = [t.pin_memory() for t in self.batch]
        self.placed = [t.to(DEVICE) for t in self.batch]
        case.x, case.labels = self.placed[:2]
        if case.rec:
            case.ids = self.placed[2]
        self.make_optimizers(dense)
        self.graph = self.capture() if CUDA and loop != "eager" else None

    def make_optimizers(self, dense):
        """Anew: their state belongs on the card, their steps into a graph."""
        case, more = self.case, {"capturable": True} if CUDA else {}
        if case.rec and not dense:
            case.opts = [
                torch.optim.SparseAdam(list(case.model.tables.parameters()),
                                       lr=1e-3),
                torch.optim.Adam(case.model.fc.parameters(), lr=1e-3,
                                 fused=True)]
        elif isinstance(case.opts[0], torch.optim.SGD):
            case.opts = [torch.optim.SGD(case.model.parameters(), lr=0.1,
                                         momentum=0.9, fused=True)]
        else:
            case.opts = [torch.optim.Adam(case.model.parameters(), lr=1e-3,
                                          fused=True, **more)]

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.case.step()
        torch.cuda.current_stream().wait_stream(side)
        for o in self.case.opts:
            o.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.case.loss().backward()
            for o in self.case.opts:
                o.step()
        return graph

    def one(self):
        if self.graph is None:
            self.case.step()
        else:
            self.graph.replay()

    def time(self, iters, with_batch):
        wait()
        start = time.perf_counter()
        for _ in range(iters):
            if with_batch:
                for to, source in zip(self.placed, self.batch):
                    to.copy_(source, non_blocking=True)
            self.one()
        wait()
        return (time.perf_counter() - start) * 1e3 / iters


def info():
    if not CUDA:
        return "torch %s, cpu" % torch.__version__
    return "torch %s, CUDA %s, cuDNN %s, %s" % (
        torch.__version__, torch.version.cuda, torch.backends.cudnn.version(),
        torch.cuda.get_device_name())


def norm_of(got, want):
    return np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30)


def check(name, precision, path):
    set_precision(precision)
    case, ours = peer_step.load_case(
        name + ("_bf16" if precision == "bf16" else ""), path)
    peer_step.compare(case, ours, norm_of, DEVICE)


def serve():
    current, runners = None, {}  # of one case, in all its ways
    for line in sys.stdin:
        try:
            if line.strip() == "info":
                print(info(), flush=True)
                continue
            loop, name, precision, iters = line.split()
            kind = ("eager" if loop == "eager" else "graph", name)
            if (name.removesuffix("_cl"), precision) != current:
                runners.clear()
                current = (name.removesuffix("_cl"), precision)
            set_precision(precision)
            if kind not in runners:
                runners[kind] = Runner(loop, name, precision)
            print("%.6f" % runners[kind].time(int(iters), loop == "step"),
                  flush=True)
        except (KeyError, ValueError, RuntimeError) as e:
            print("error: %s" % str(e).replace("\n", " ")[:300], flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["check"] and len(sys.argv) == 5:
        check(*sys.argv[2:])
    else:
        serve()
