"""The PyTorch side of the step benchmark.

As a filter (no arguments) it reads one command a line on stdin,

    case threads iters

and answers one line: milliseconds per training step (forward, backward,
optimizer), the mean over `iters` steps on one fixed batch that lies in
memory; behind a case, _bf16 stands for autocast. The line `info` is answered with the versions of PyTorch and BLAS, a
line that it cannot serve with `error: reason`.

    peer_step.py dump CASE FILE

reads the weights and the batch from FILE, runs one forward and backward
pass and writes the loss and all gradients to FILE.peer.

    peer_step.py check CASE FILE

compares the loss and gradients in FILE with PyTorch's in double precision
and prints a line `name error peer_error` per tensor: the largest difference
over the largest absolute value of the tensor, for FILE and for PyTorch's own
float32 (`compare` says how ReLUs near 0 are treated).

Tensor file
-----------
Any number of tensors, one after the other. Each is a text line

    name dtype rank dim0 dim1 ...\n        dtype: float32 or int32

and then the raw little-endian values, row-major, without padding. Names:

    in/x        float32  [B,784] (mlp) or [B,H,W,C] (lenet, resnet20)
    in/labels   int32    [B] class numbers; rec: float32 [B] of 0 and 1
    in/dense    float32  [B,13]     rec only
    in/ids      int32    [8,B,4]    rec only: table, example, index in the bag
    var/NAME    float32  a variable by its Hooke name
    out/reluN   float32  [B,H,W,C]  ResNet-20 only: the result of its N-th ReLU
    loss        float32  rank 0
    grad/NAME   float32  gradient of the trainable variable NAME
    rows/NAME   int32    [n] optional: grad/NAME is [n,dim] and holds these
                         rows only (a row may come twice: they add up)

Layouts are Hooke's: dense kernels [in,out], convolution kernels HWIO,
activations NHWC, flatten in NHWC order, embeddings [rows,dim]. The
recommender concatenates the eight bags in table order, then the 13 dense
features. Variables are named in the order of creation (dense, dense_1, ...);
a ResNet block creates conv1, bn1, conv2, bn2, then the conv and bn of its
shortcut (1x1, stride 2) where it has one.
"""

import os
import re
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

TABLES, ROWS, DIM, BAG, DENSE = 8, 100000, 32, 4, 13


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.ModuleList(
            [nn.Linear(784, 512), nn.Linear(512, 256), nn.Linear(256, 10)])

    def forward(self, x):
        x = F.relu(self.fc[0](x))
        x = F.relu(self.fc[1](x))
        return self.fc[2](x)


class Lenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ModuleList([nn.Conv2d(1, 32, 5, padding=2),
                                   nn.Conv2d(32, 64, 5, padding=2)])
        self.fc = nn.ModuleList([nn.Linear(3136, 512), nn.Linear(512, 10)])

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv[0](x)), 2)
        x = F.max_pool2d(F.relu(self.conv[1](x)), 2)
        # NHWC order; for a channels_last tensor the flatten is a view.
        x = x.permute(0, 2, 3, 1).flatten(1)
        return self.fc[1](F.relu(self.fc[0](x)))


class Relu(nn.Module):
    """ReLU whose active elements can be recorded, or prescribed: with `pattern`
    it is the linear function that the ReLUs of another program computed."""

    def __init__(self):
        super().__init__()
        self.pattern, self.record, self.active = None, False, None

    def forward(self, x):
        if self.record:
            self.active = (x > 0).detach()
        if self.pattern is not None:
            return x * self.pattern
        return F.relu(x, inplace=True)


class Block(nn.Module):
    def __init__(self, cin, cout, stride, act):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.act1, self.act2 = act(), act()
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False),
                nn.BatchNorm2d(cout))

    def forward(self, x):
        y = self.act1(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        s = x if self.down is None else self.down(x)
        return self.act2(y + s)


class Resnet20(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(16)
        self.act = act()
        blocks, cin = [], 16
        for cout in (16, 32, 64):
            for i in range(3):
                stride = 2 if cout != 16 and i == 0 else 1
                blocks.append(Block(cin, cout, stride, act))
                cin = cout
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = self.act(self.bn(self.conv(x)))
        x = self.blocks(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Rec(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(
            [nn.EmbeddingBag(ROWS, DIM, mode="sum", sparse=True)
             for _ in range(TABLES)])
        self.fc = nn.ModuleList([nn.Linear(TABLES * DIM + DENSE, 256),
                                 nn.Linear(256, 64), nn.Linear(64, 1)])

    def forward(self, dense, ids):
        bags = [t(ids[i]) for i, t in enumerate(self.tables)]
        x = torch.cat(bags + [dense], 1)
        x = F.relu(self.fc[0](x))
        x = F.relu(self.fc[1](x))
        return self.fc[2](x).squeeze(1)


def numbered(base, i):
    return base if i == 0 else "%s_%d" % (base, i)


def variables(model):
    """(Hooke name, torch tensor, kind) for every variable of the model."""
    out, count = [], {}

    def scope(base):
        i = count.get(base, 0)
        count[base] = i + 1
        return numbered(base, i)

    def visit(m):
        if isinstance(m, nn.EmbeddingBag):
            out.append((scope("embedding") + "/embeddings", m.weight, "as_is"))
        elif isinstance(m, nn.Conv2d):
            s = scope("conv2d")
            out.append((s + "/kernel", m.weight, "conv"))
            if m.bias is not None:
                out.append((s + "/bias", m.bias, "as_is"))
        elif isinstance(m, nn.BatchNorm2d):
            s = scope("batch_normalization")
            out.append((s + "/gamma", m.weight, "as_is"))
            out.append((s + "/beta", m.bias, "as_is"))
            out.append((s + "/moving_mean", m.running_mean, "as_is"))
            out.append((s + "/moving_variance", m.running_var, "as_is"))
        elif isinstance(m, nn.Linear):
            s = scope("dense")
            out.append((s + "/kernel", m.weight, "dense"))
            out.append((s + "/bias", m.bias, "as_is"))
        for child in m.children():
            visit(child)

    visit(model)
    return out


def to_torch(a, kind):
    t = torch.from_numpy(a)
    if kind == "dense":
        return t.t()
    if kind == "conv":  # HWIO to OIHW
        return t.permute(3, 2, 0, 1)
    return t


def to_hooke(t, kind):
    if kind == "dense":
        t = t.t()
    elif kind == "conv":
        t = t.permute(2, 3, 1, 0)
    return np.ascontiguousarray(t.numpy())


def optimizer(cls, params, **kw):
    """The fused form where this PyTorch has one for the CPU."""
    params = list(params)
    try:
        return cls(params, fused=True, **kw)
    except (TypeError, RuntimeError, ValueError):
        return cls(params, **kw)


class Case:
    """One model with its batch, loss and optimizers."""

    def __init__(self, name):
        known = re.fullmatch(
            r"(mlp|lenet|resnet20_|smooth20_|rec)(\d+)(_cl)?(_bf16)?", name)
        if known is None:
            raise KeyError("no case " + name)
        family, self.batch = known.group(1), int(known.group(2))
        resnet = family in ("resnet20_", "smooth20_")
        self.channels_last = resnet or bool(known.group(3))
        self.bf16 = bool(known.group(4))
        torch.manual_seed(1)
        if family == "mlp":
            self.model = Mlp()
            self.x = torch.rand(self.batch, 784)
        elif family == "lenet":
            self.model = Lenet()
            self.x = torch.rand(self.batch, 1, 28, 28)
        elif resnet:
            self.model = Resnet20(Relu if family == "resnet20_" else nn.Softplus)
            self.x = torch.randn(self.batch, 3, 32, 32)
        else:
            self.model = Rec()
            self.x = torch.randn(self.batch, DENSE)
            self.ids = torch.randint(0, ROWS, (TABLES, self.batch, BAG))
            self.labels = torch.randint(0, 2, (self.batch,)).float()
        self.rec = family == "rec"
        if not self.rec:
            self.labels = torch.randint(0, 10, (self.batch,))
        if self.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
            self.x = self.x.contiguous(memory_format=torch.channels_last)
        self.model.train()
        if self.rec:
            tables = list(self.model.tables.parameters())
            self.opts = [torch.optim.SparseAdam(tables, lr=1e-3),
                         optimizer(torch.optim.Adam,
                                   self.model.fc.parameters(), lr=1e-3)]
        elif resnet:
            self.opts = [optimizer(torch.optim.SGD, self.model.parameters(),
                                   lr=0.1, momentum=0.9)]
        else:
            self.opts = [optimizer(torch.optim.Adam, self.model.parameters(),
                                   lr=1e-3)]

    def logits(self):
        if self.rec:
            return self.model(self.x, self.ids)
        return self.model(self.x)

    def loss(self):
        with torch.autocast(self.x.device.type, torch.bfloat16,
                            enabled=self.bf16):
            logits = self.logits()
        # The loss in the precision that the batch has.
        logits = logits.to(self.x.dtype)
        if self.rec:
            return F.binary_cross_entropy_with_logits(logits, self.labels)
        return F.cross_entropy(logits, self.labels)

    def step(self):
        for o in self.opts:
            o.zero_grad(set_to_none=True)
        loss = self.loss()
        loss.backward()
        for o in self.opts:
            o.step()
        return loss

    def to(self, device):
        self.model.to(device)
        self.x, self.labels = self.x.to(device), self.labels.to(device)
        if self.rec:
            self.ids = self.ids.to(device)

    def double(self):
        self.bf16 = False
        self.model.double()
        self.x = self.x.double()
        if self.rec:
            self.labels = self.labels.double()

    def load(self, tensors):
        """Takes variables and batch from a tensor file."""
        with torch.no_grad():
            for name, t, kind in variables(self.model):
                key = "var/" + name
                if key not in tensors and "/moving_" in name:
                    continue
                t.copy_(to_torch(tensors[key], kind))
        if self.rec:
            self.x = torch.from_numpy(tensors["in/dense"])
            self.ids = torch.from_numpy(tensors["in/ids"]).long()
            self.labels = torch.from_numpy(tensors["in/labels"]).float()
            return
        x = torch.from_numpy(tensors["in/x"])
        if x.dim() == 4:
            x = x.permute(0, 3, 1, 2)
            if not self.channels_last:
                x = x.contiguous()
        self.x = x
        self.labels = torch.from_numpy(tensors["in/labels"]).long()


def read_tensors(path):
    out = {}
    with open(path, "rb") as f:
        while True:
            head = f.readline().decode().split()
            if not head:
                return out
            dtype, rank = np.dtype(head[1]).newbyteorder("<"), int(head[2])
            dims = [int(d) for d in head[3:3 + rank]]
            n = int(np.prod(dims)) if rank else 1
            raw = f.read(n * 4)
            if len(raw) != n * 4:
                raise ValueError("%s: %s is cut short" % (path, head[0]))
            out[head[0]] = np.frombuffer(raw, dtype).reshape(dims).copy()


def write_tensor(f, name, a):
    dims = "".join(" %d" % d for d in a.shape)
    f.write(("%s %s %d%s\n" % (name, a.dtype.name, a.ndim, dims)).encode())
    f.write(a.tobytes())


def one_pass(case):
    """Loss and gradients, under their tensor-file names."""
    for o in case.opts:
        o.zero_grad(set_to_none=True)
    loss = case.loss()
    loss.backward()
    out = {"loss": np.asarray(loss.item())}
    for name, t, kind in variables(case.model):
        g = t.grad
        if g is None:
            continue
        if g.is_sparse:
            g = g.coalesce().cpu()
            out["rows/" + name] = g.indices()[0].numpy().astype(np.int32)
            out["grad/" + name] = np.ascontiguousarray(g.values().numpy())
        else:
            out["grad/" + name] = to_hooke(g.cpu(), kind)
    return out


def load_case(name, path):
    torch.set_num_threads(os.cpu_count() or 1)
    case, tensors = Case(name), read_tensors(path)
    case.load(tensors)
    return case, tensors


def dump(name, path):
    case, _ = load_case(name, path)
    with open(path + ".peer", "wb") as f:
        for key, a in one_pass(case).items():
            dtype = np.int32 if key.startswith("rows/") else np.float32
            write_tensor(f, key, np.asarray(a, dtype=dtype))


def full_grad(tensors, key):
    """The gradient in float64, sparse rows spread out."""
    g, rows = tensors[key], tensors.get("rows/" + key[5:])
    if rows is None:
        return g.astype(np.float64)
    full = np.zeros((ROWS, g.shape[1]))
    np.add.at(full, rows, g)
    return full


def largest(got, want):
    """The largest difference over the largest value."""
    return np.abs(got - want).max() / max(np.abs(want).max(), 1e-30)


def print_errors(exact, ours, exact_peer, peer, error):
    """`tensor error peer_error` lines; another text where one is missing."""
    for key in exact:
        if key.startswith("rows/"):
            continue
        if key not in ours:
            print(key, "missing")
            continue
        want, got = full_grad(exact, key), full_grad(ours, key)
        if got.shape != want.shape:
            print(key, "shape %s not %s" % (got.shape, want.shape))
            continue
        print("%s %.3g %.3g" % (key, error(got, want),
                                error(full_grad(peer, key),
                                      full_grad(exact_peer, key))))


def relus(case):
    return [m for m in case.model.modules() if isinstance(m, Relu)]


def recorded_pass(case):
    """(loss and gradients, the active elements of each ReLU)"""
    for relu in relus(case):
        relu.pattern, relu.record = None, True
    result = one_pass(case)
    return result, [relu.active for relu in relus(case)]


def exact_pass(case, patterns):
    """Loss and gradients on the linear piece that `patterns` prescribe."""
    for relu, pattern in zip(relus(case), patterns):
        relu.pattern, relu.record = pattern.to(case.x.device), False
    return one_pass(case)


def file_patterns(case, tensors):
    """The active elements of the program that wrote the file."""
    return [torch.from_numpy(tensors["out/relu%d" % i]).permute(0, 3, 1, 2) > 0
            for i, _ in enumerate(relus(case))]


def count_changed(patterns, exact):
    return sum(int((a.cpu() != b.cpu()).sum()) for a, b in zip(patterns, exact))


def compare(case, ours, error, place):
    """Prints errors of `ours` and of PyTorch at `place` against the exact
    gradients. A ReLU whose input lies within rounding of 0 may choose another
    linear piece than in double precision, and one such element moves gradients
    by 1 %: each program is compared with the exact gradient of its own piece.
    How many elements differ from double precision's is printed on stderr, and
    their share as the error of a tensor relu/signs."""
    case.to(place)
    peer, peer_patterns = recorded_pass(case)
    case.to("cpu")
    case.double()
    exact, exact_patterns = recorded_pass(case)
    if not exact_patterns:
        print_errors(exact, ours, exact, peer, error)
        return
    our_patterns = file_patterns(case, ours)
    total = sum(p.numel() for p in exact_patterns)
    changed = count_changed(our_patterns, exact_patterns)
    peer_changed = count_changed(peer_patterns, exact_patterns)
    print("of %d ReLU inputs %d have another sign than in double precision, "
          "%d in PyTorch" % (total, changed, peer_changed), file=sys.stderr)
    # Judged like a tensor: a piece far from the exact one is an error, too.
    print("relu/signs %.3g %.3g" % (changed / total, peer_changed / total))
    print_errors(exact_pass(case, our_patterns), ours,
                 exact_pass(case, peer_patterns), peer, error)


def check(name, path):
    """Compares the tensors of `path`, and PyTorch's own float32."""
    case, ours = load_case(name, path)
    compare(case, ours, largest, "cpu")


def blas():
    """The BLAS library this process has loaded, or a dash."""
    torch.mm(torch.ones(64, 64), torch.ones(64, 64))
    with open("/proc/self/maps") as f:
        names = {line.split()[-1] for line in f if "blas" in line}
    return " ".join(sorted(names)) or "-"


def serve():
    cases = {}
    torch.set_flush_denormal(True)  # as Hooke does: a fixed batch decays
    for line in sys.stdin:
        try:
            if line.strip() == "info":
                print("torch %s, BLAS %s" % (torch.__version__, blas()),
                      flush=True)
                continue
            name, threads, iters = line.split()
            threads, iters = int(threads), int(iters)
            torch.set_num_threads(threads)
            if name not in cases:
                cases[name] = Case(name)
            case = cases[name]
            start = time.perf_counter()
            for _ in range(iters):
                case.step()
            ms = (time.perf_counter() - start) * 1e3 / max(iters, 1)
            print("%.6f" % ms, flush=True)
        except (KeyError, ValueError, RuntimeError) as e:
            print("error: %s" % str(e).replace("\n", " "), flush=True)


def main():
    if len(sys.argv) == 1:
        serve()
    elif len(sys.argv) == 4 and sys.argv[1] in ("dump", "check"):
        {"dump": dump, "check": check}[sys.argv[1]](*sys.argv[2:])
    else:
        sys.exit("usage: peer_step.py [dump|check CASE FILE]")


if __name__ == "__main__":
    main()
