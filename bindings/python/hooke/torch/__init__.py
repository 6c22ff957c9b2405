"""Elastic averaging for PyTorch.

    import hooke.torch as hooke
    model, opt = Net().cuda(), torch.optim.AdamW(...)
    with hooke.join(model, opt, center="host:2222", key="cluster.key", period=10) as w:
        for batch in DataLoader(ds, sampler=w.sampler(ds)):
            loss(model, batch).backward(); opt.step(); opt.zero_grad()
        print(w.stats())
    state = hooke.center_state_dict("host:2222", key="cluster.key")

The model and the optimizer stay what they are: schedulers, GradScaler and
torch.compile work as before.
"""
from __future__ import annotations

from .._center import Center, start_center
from .._errors import HookeError
from .._exchange import Stats
from .._keys import generate_key
from ._center import center_state_dict, load, save, spawn
from ._items import Share, ShareFn
from ._join import TorchWorker, join
from ._sampler import LeasedSampler, ShareSampler

__all__ = ["Center", "HookeError", "LeasedSampler", "Share", "ShareFn",
           "ShareSampler", "Stats", "TorchWorker", "center_state_dict",
           "generate_key", "join", "load", "save", "spawn", "start_center"]
