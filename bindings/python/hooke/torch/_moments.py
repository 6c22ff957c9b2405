"""An optimizer's state as items to exchange (share_moments)."""
from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor

from .._errors import HookeError
from .._observe import OPTIMIZER
from ._items import Item, find_in

# What state begins with, if not with zeros; "lr" is the group's rate.
_FIRST: dict[type[torch.optim.Optimizer], dict[str, Any]] = {
    torch.optim.Rprop: {"step_size": "lr"},
    torch.optim.ASGD: {"eta": "lr", "mu": 1.0},
    torch.optim.NAdam: {"mu_product": 1.0},
}


def moments(items: Sequence[Item], optimizer: torch.optim.Optimizer
            ) -> list[Item]:
    """The optimizer's state of these parameters, to be copied."""
    name = type(optimizer).__name__
    if isinstance(optimizer, torch.optim.LBFGS):
        raise HookeError("share_moments: LBFGS is not supported, because it "
                         "has no state for each parameter")
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise HookeError("share_moments: SparseAdam is not supported, "
                         "because its step count is not a tensor")
    if not optimizer.state:
        _make_state(optimizer, name)
    made = []
    for item in items:
        state = optimizer.state.get(item.find()) if item.trainable else None
        for slot, value in (state or {}).items():
            if isinstance(value, Tensor):
                found = Item(f"{OPTIMIZER}{item.name}/{slot}",
                             find_in(state, slot), "copy", False)
                found.shape = tuple(found.tensor().shape)
                made.append(found)
    return made


@torch.no_grad()
def _make_state(optimizer: torch.optim.Optimizer, name: str) -> None:
    """Gives an optimizer that has made no step the state that its first step
    begins with."""
    if isinstance(optimizer, torch.optim.SGD) and any(
            g["momentum"] and g["dampening"] for g in optimizer.param_groups):
        raise HookeError("share_moments: SGD with dampening begins with its "
                         "first gradient, not with zeros. Make a step before "
                         "join")
    try:
        _step_on_zeros(optimizer)
    except Exception as error:
        raise HookeError(f"share_moments: {name} has no state yet, and a step "
                         f"with zero gradients failed: {error}; make a step "
                         "before join") from error
    first = next((f for kind, f in _FIRST.items()
                  if isinstance(optimizer, kind)), {})
    known = type(optimizer).__module__.startswith("torch.optim")
    for g in optimizer.param_groups:
        for p in g["params"]:
            for slot, value in optimizer.state.get(p, {}).items():
                if not isinstance(value, Tensor):
                    continue
                if not known and slot != "step" and bool(value.any()):
                    raise HookeError(
                        f"share_moments: {slot} of {name} does not start with "
                        "zeros; make a step before join")
                start = first.get(slot, 0.0)
                value.fill_(g["lr"] if start == "lr" else start)


def _step_on_zeros(optimizer: torch.optim.Optimizer) -> None:
    """A step with a rate of 0 on gradients of 0: parameters stay."""
    groups = optimizer.param_groups
    kept: list[dict[str, Any]] = [
        {k: g[k] for k in ("lr", "weight_decay") if k in g} for g in groups]
    grads = [[p.grad for p in g["params"]] for g in groups]
    try:
        for g in groups:
            for k in "lr", "weight_decay":
                if k in g:
                    g[k] = (torch.zeros_like(g[k]) if isinstance(g[k], Tensor)
                            else 0.0)
            for p in g["params"]:
                if p.requires_grad:
                    p.grad = torch.zeros_like(p)
        optimizer.step()
    finally:
        for g, values, its in zip(groups, kept, grads):
            g.update(values)
            for p, grad in zip(g["params"], its):
                p.grad = grad
