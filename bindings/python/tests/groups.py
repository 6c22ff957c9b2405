"""Processes that are one worker; started by test_groups.py:
groups.py KIND RANK SIZE STORE CENTER..."""
import faulthandler
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

import hooke.torch as hooke


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 2))


def train(model, opt, steps, rank):
    for i in range(steps):
        g = torch.Generator().manual_seed(100 * i + rank)
        model(torch.randn(8, 5, generator=g)).square().mean().backward()
        opt.step()
        opt.zero_grad()


def ddp(rank, centers, overlap):
    model = nn.parallel.DistributedDataParallel(net())
    opt = torch.optim.SGD(model.parameters(), 0.1)
    with hooke.join(model, opt, center=centers, period=2, worker=0, workers=1,
                    overlap_steps=overlap, verbose=False) as w:
        train(model, opt, 6, rank)
        w.flush()
        assert w.id == 0 and w.stats().local_step == 6
        assert len(w.sampler(range(10))) == 5
        mine = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        both = [torch.zeros_like(mine) for _ in range(2)]
        dist.all_gather(both, mine)
        assert torch.equal(both[0], both[1]), "ranks have drifted apart"
        w.load_state_dict(w.state_dict())
        if rank == 0:
            print("exchanges", w.stats().exchanges, flush=True)
            found = hooke.center_state_dict(centers)
            assert set(found) == set(net().state_dict()), found.keys()


def ddp_failure(rank, centers):
    """Rank 0's failure is everybody's; nobody hangs."""
    model = nn.parallel.DistributedDataParallel(net())
    try:
        hooke.join(model, None, center="127.0.0.1:1", connect_seconds=0.2)
    except hooke.HookeError as e:
        print(f"rank {rank}: {e}", flush=True)


def bare(rank, centers):
    """A module that DDP does not wrap, in a process of several ranks."""
    wrapped = nn.parallel.DistributedDataParallel(net())
    for model, ranks in ((net(), None), (net(), "one"), (wrapped, "independent")):
        try:
            hooke.join(model, None, center=centers, ranks=ranks)
        except hooke.HookeError as e:
            print("refused:", e, flush=True)
    with hooke.join(net(), None, center=centers, ranks="independent",
                    verbose=False) as w:
        ids = [None, None]
        dist.all_gather_object(ids, w.id)
        print("ids", sorted(ids), flush=True)


def fsdp(rank, centers):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 1, bias=False))
    torch.manual_seed(4)
    whole = {k: torch.randn(v.shape) for k, v in model.state_dict().items()}
    model.load_state_dict(whole)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    try:
        hooke.join(model, opt, center=centers[0])
    except hooke.HookeError as e:
        assert "2 shards" in str(e), e
    with hooke.join(model, opt, center=centers, period=2, moving_rate=0.5,
                    verbose=False) as w:
        for _ in range(2):
            for p in model.parameters():
                p.grad = torch.ones_like(p)
            opt.step()
        assert w.stats().exchanges == 1
        with torch.no_grad():  # leaves whole parameters in the modules
            model(torch.zeros(3, 5))
        w.exchange_now()
        with torch.no_grad():
            model(torch.zeros(3, 5))
        dist.barrier()
        if rank == 0:
            found = hooke.center_state_dict(centers)
            for name, t in whole.items():  # half of two steps of 0.1
                torch.testing.assert_close(found[name], t - 0.1)
            print("whole", sorted(found), flush=True)
        dist.barrier()


def refused(rank, centers):
    """Placements that are none of FSDP2's."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    model = nn.Linear(4, 4, bias=False)
    model.weight = nn.Parameter(distribute_tensor(
        model.weight.detach(), mesh, [Replicate()]))
    try:
        hooke.join(model, None, center=centers)
    except hooke.HookeError as e:
        print("said", e, flush=True)
    inner = nn.Sequential(nn.parallel.DistributedDataParallel(nn.Linear(2, 2)))
    try:
        hooke.join(inner, None, center=centers)
    except hooke.HookeError as e:
        print("said", e, flush=True)


def main():
    faulthandler.enable()
    kind, rank, size, store, *centers = sys.argv[1:]
    rank = int(rank)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank,
                            world_size=int(size))
    if kind.startswith("ddp-overlap"):
        ddp(rank, centers, 1)
    elif kind == "ddp":
        ddp(rank, centers, 0)
    else:
        {"ddp_failure": ddp_failure, "bare": bare, "fsdp": fsdp,
         "refused": refused}[kind](rank, centers)
    dist.destroy_process_group()
    # Gloo's C++ threads end with the process, at times by "terminate called
    # without an active exception" once Python is gone; all is said by now.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
