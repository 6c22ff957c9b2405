"""One machine of several GPUs is one worker: DDP inside, Hooke between.

  torchrun --nproc-per-node 8 torch_ddp.py --center HOST:2222 --key cluster.key

on every machine, beside one `hooke center --listen *:2222 --key cluster.key`.
Rank 0 of a machine exchanges and gives the others what it got.
"""
import argparse
import os

import torch
import torch.distributed as dist
from mnist_data import load
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hooke.torch as hooke


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--center", required=True)
    p.add_argument("--key")
    p.add_argument("--data")
    p.add_argument("--epochs", type=int, default=1)
    a = p.parse_args()
    # The ranks of this machine alone: the others are workers of their own.
    gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if gpu else "gloo")
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", rank) if gpu else torch.device("cpu")
    torch.set_num_threads(1)

    (x, y), _ = load(a.data)
    ds = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(),
                          nn.Linear(64, 10)).to(device)
    model = nn.parallel.DistributedDataParallel(model)
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    with hooke.join(model, opt, center=a.center, key=a.key) as w:
        loader = DataLoader(ds, batch_size=64, sampler=w.sampler(ds))
        for _ in range(a.epochs):
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
                loss.backward()
                opt.step()
                opt.zero_grad()
        if rank == 0:
            print(f"worker {w.id}: loss {loss.item():.3f}, "
                  f"{w.stats().exchanges} exchanges", flush=True)
    dist.barrier()  # nobody ends while another rank still talks to it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    os._exit(0)  # a thread of gloo can abort a Python that is ending
