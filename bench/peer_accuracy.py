"""The PyTorch side of the time-to-accuracy benchmark.

    peer_accuracy.py --problem mnist --data DIR --threads N --target 0.984
                     [--seed N] [--limit SECONDS] [--ema 0.99] [--rate R]
                     [--ranks N] [--every EXAMPLES]

Trains the network of the problem's experiment file (experiments/NAME.yaml) on
batches that lie in memory, scores the test set every EXAMPLES, and stops once
the raw or the averaged weights have reached the target, or at the limit.
Prints one line of JSON: examples a second while training, and for the raw
weights and their average the seconds to the target, with scoring outside the
clock (`seconds`) and inside (`inside`), and the examples that it took.

--ranks N trains with DistributedDataParallel over gloo, N processes with
--threads threads each, each on its own share of every batch order; the rate
is multiplied by --scale.
"""

import argparse
import copy
import glob
import gzip
import io
import json
import os
import struct
import tarfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

BATCH = 64
SCORE_BATCH = 1000


def read_idx(path):
    with gzip.open(path, "rb") as f:
        data = f.read()
    rank = data[3]
    shape = struct.unpack(">%dI" % rank, data[4:4 + 4 * rank])
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def load_idx(folder):
    def part(name):
        images = read_idx(os.path.join(folder, name + "-images-idx3-ubyte.gz"))
        labels = read_idx(os.path.join(folder, name + "-labels-idx1-ubyte.gz"))
        x = torch.from_numpy(images.astype(np.float32) / 255)
        return x, torch.from_numpy(labels.astype(np.int64))
    return part("train"), part("t10k")


def load_jpeg(folder):
    """CIFAR-10's tar shards: pictures NCHW, as the experiment scales them."""
    from PIL import Image
    mean = np.array([0.4914, 0.4822, 0.4465], np.float32).reshape(3, 1, 1)
    std = np.array([0.247, 0.2435, 0.2616], np.float32).reshape(3, 1, 1)

    def part(name):
        images, labels = {}, {}
        for path in sorted(glob.glob(os.path.join(folder, name))):
            with tarfile.open(path) as tar:
                for member in tar:
                    stem, kind = os.path.splitext(member.name)
                    data = tar.extractfile(member).read()
                    if kind == ".cls":
                        labels[stem] = int(data)
                    elif kind in (".jpg", ".jpeg"):
                        images[stem] = np.asarray(
                            Image.open(io.BytesIO(data)).convert("RGB"))
        order = sorted(images)
        x = np.stack([images[s] for s in order]).transpose(0, 3, 1, 2)
        x = (x.astype(np.float32) / 255 - mean) / std
        return (torch.from_numpy(np.ascontiguousarray(x)),
                torch.tensor([labels[s] for s in order]))
    train, (x, y) = (part("cifar10-jpeg-%s-*.tar.gz" % n)
                     for n in ("train", "test"))
    return train, (x[:, :, 2:30, 2:30].contiguous(), y)


def crop_and_flip(x, order):
    """Random 28 x 28 windows of a batch, half of them mirrored."""
    n = len(x)
    at = torch.randint(0, 5, (2, n, 1), generator=order)
    rows = at[0] + torch.arange(28)
    columns = at[1] + torch.arange(28)
    flip = torch.rand(n, generator=order) < 0.5
    columns[flip] = columns[flip].flip(1)
    pick = torch.arange(n)[:, None, None]
    return x[pick, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(512, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))


def cnn():
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)), nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3136, 256), nn.ReLU(),
        nn.Dropout(0.4), nn.Linear(256, 10))


def paper_network():
    return nn.Sequential(
        nn.Conv2d(3, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 5),
        nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(128, 64, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(256, 10))


def decayed(model, rate):
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9,
                           weight_decay=1e-4, fused=True)


def momentum(model, rate):
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9,
                           fused=True)


def adam(model, rate):
    return torch.optim.Adam(model.parameters(), lr=rate, fused=True)


# Folder, reader, what a batch goes through, network, optimizer, rate: as in
# experiments/*.yaml.
PROBLEMS = {
    "mnist": ("mnist", load_idx, None, mlp, momentum, 0.05),
    "fashion": ("fashion-mnist", load_idx, None, cnn, adam, 0.001),
    "mnist-cnn": ("mnist", load_idx, None, cnn, adam, 0.001),
    "cifar": ("cifar10-jpeg", load_jpeg, crop_and_flip, paper_network, decayed,
              0.01),
}


def init_weights(model):
    """Glorot's uniform weights and zero biases, as Hooke begins."""
    for m in model.modules():
        if isinstance(m, (nn.Linear, nn.Conv2d)):
            nn.init.xavier_uniform_(m.weight)
            nn.init.zeros_(m.bias)


class Average:
    """An exponential average of the weights, taken every five steps."""
    EVERY = 5

    def __init__(self, model, decay):
        self.model = copy.deepcopy(model).eval()
        self.pairs = list(zip(self.model.parameters(), model.parameters()))
        self.weight = 1 - decay ** self.EVERY

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_([a for a, _ in self.pairs],
                             [x.detach() for _, x in self.pairs], self.weight)


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    right = 0
    for at in range(0, len(x), SCORE_BATCH):
        out = model(x[at:at + SCORE_BATCH])
        right += (out.argmax(1) == y[at:at + SCORE_BATCH]).sum().item()
    model.train()
    return right / len(x)


class Clock:
    """Seconds of training, and with scoring."""

    def __init__(self):
        self.began = time.perf_counter()
        self.scoring = 0.0

    def inside(self):
        return time.perf_counter() - self.began

    def training(self):
        return self.inside() - self.scoring


def judge(found, models, test, clock, examples, target):
    """Scores every model; notes when each reached the target first."""
    now, inside = clock.training(), clock.inside()
    for name, model in models.items():
        value = accuracy(model, *test)
        kept = found.setdefault(name, {"best": 0.0})
        kept["best"] = max(kept["best"], value)
        if value >= target and "seconds" not in kept:
            kept.update(seconds=round(now, 3), inside=round(inside, 3),
                        examples=examples)
    clock.scoring += clock.inside() - inside


def train(o, rank=0):
    torch.set_num_threads(o.threads)
    folder, load, change, network, make_optimizer, rate = PROBLEMS[o.problem]
    torch.manual_seed(o.seed)
    (x, y), test = load(os.path.join(o.data, folder))
    model = network()
    init_weights(model)
    average = Average(model, o.ema)
    outer = model
    if o.ranks > 1:
        outer = nn.parallel.DistributedDataParallel(model)
    optimizer = make_optimizer(model, (o.rate or rate) * o.scale)
    order = torch.Generator().manual_seed(o.seed)
    torch.manual_seed(o.seed * 1000 + rank)  # dropout of each rank
    step, examples, scored, found, clock = 0, 0, 0, {}, Clock()
    share = BATCH * o.ranks
    ended = False
    while not ended:
        permutation = torch.randperm(len(x), generator=order)
        for at in range(0, len(x) - share + 1, share):
            rows = permutation[at + rank * BATCH:at + (rank + 1) * BATCH]
            batch = x[rows] if change is None else change(x[rows], order)
            loss = F.cross_entropy(outer(batch), y[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
            examples += share
            if step % Average.EVERY == 0:
                average.update()
            if examples - scored < o.every:
                continue
            scored = examples
            state = [0]
            if rank == 0:
                models = {"raw": model, "ema": average.model}
                judge(found, models, test, clock, examples, o.target)
                done = any("seconds" in k for k in found.values())
                state = [int(done or clock.training() >= o.limit)]
            if o.ranks > 1:
                answer = torch.tensor(state)
                dist.broadcast(answer, 0)
                state = answer.tolist()
            ended = bool(state[0])
            if ended:
                break
    if rank == 0:
        print(json.dumps({
            "side": "torch " + torch.__version__, "problem": o.problem,
            "threads": o.threads, "ranks": o.ranks, "seed": o.seed,
            "target": o.target, "rate": (o.rate or rate) * o.scale,
            "rate_examples_s": round(examples / clock.training()),
            "epochs": round(examples / len(x), 2), **found}), flush=True)


def one_rank(rank, o, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=o.ranks)
    train(o, rank)
    dist.destroy_process_group()


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--problem", choices=sorted(PROBLEMS), default="mnist")
    p.add_argument("--data", required=True)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--target", type=float, default=0.984)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--limit", type=float, default=40)
    p.add_argument("--ema", type=float, default=0.99)
    p.add_argument("--rate", type=float, default=0)
    p.add_argument("--scale", type=float, default=1)
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--every", type=int, default=6400)
    o = p.parse_args()
    if o.ranks == 1:
        train(o)
    else:
        mp.spawn(one_rank, (o, free_port()), nprocs=o.ranks)


if __name__ == "__main__":
    main()
