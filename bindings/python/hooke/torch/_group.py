"""Several processes that are one worker: DDP, and FSDP2's shards."""
from __future__ import annotations

from typing import Any, Callable, Optional

import torch.distributed as dist
from torch import Tensor, nn

from .._errors import HookeError


class Group:
    """Ranks of one worker. Rank 0 exchanges, the others get what it got. A
    group of one for a process that is a worker by itself."""

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self.rank = dist.get_rank(group) if group is not None else 0
        self.size = dist.get_world_size(group) if group is not None else 1
        self.leads = self.rank == 0
        self.alone = self.size == 1
        self.bare = group is None  # the model is in no DDP
        self._first = (dist.get_global_rank(group, 0)
                       if group is not None else 0)

    def tell(self, value: Any) -> Any:
        """Rank 0's value, in every rank."""
        if self.alone:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=self._first, group=self._group)
        return box[0]

    def give(self, tensor: Tensor) -> None:
        """Rank 0's tensor, in every rank."""
        if not self.alone:
            dist.broadcast(tensor, src=self._first, group=self._group)

    def together(self, call: Callable[[], Any]) -> Any:
        """call() in rank 0; a failure there is one of every rank."""
        if self.alone:
            return call()
        value, error = None, None
        if self.leads:
            try:
                value = call()
            except Exception as failure:
                error = failure
        text = self.tell(None if error is None else str(error))
        if error is not None:
            raise error
        if text is not None:
            raise HookeError(f"rank 0 of this worker: {text}", "HK_E_STATE")
        return value


def group_of(model: nn.Module) -> Group:
    """The ranks that a DDP model is spread over."""
    inner = getattr(model, "_orig_mod", model)  # torch.compile's
    if isinstance(inner, nn.parallel.DistributedDataParallel):
        return Group(inner.process_group)
    for m in model.modules():
        kind = type(m).__name__
        if kind == "FullyShardedDataParallel":
            raise HookeError("FullyShardedDataParallel (FSDP1) is not "
                             "supported; use fully_shard (FSDP2)")
        if isinstance(m, nn.parallel.DistributedDataParallel) and m is not inner:
            raise HookeError("the model has DistributedDataParallel inside "
                             "of another module; wrap the whole model in it, "
                             "and give join the result")
    return Group()


def check_ranks(group: Group, mesh: "Optional[Mesh]",
                ranks: Optional[str]) -> None:
    """Refuses a bare module where torch.distributed has several ranks: each
    rank would become a worker of its own, and replicas that DDP keeps equal
    would diverge."""
    if ranks not in (None, "independent"):
        raise HookeError(f"ranks is {ranks!r}; it has to be 'independent' or "
                         "None")
    if ranks == "independent":
        if not group.bare:
            raise HookeError("ranks is 'independent', but the ranks of a "
                             "model in DistributedDataParallel are one "
                             "worker; leave ranks= out")
        return
    size = (dist.get_world_size()
            if dist.is_available() and dist.is_initialized() else 1)
    if size > 1 and group.bare and mesh is None:
        raise HookeError(
            f"torch.distributed has {size} ranks, but the model is not in "
            "DistributedDataParallel: give join the model in its DDP wrapper "
            "(Lightning: trainer.model, Transformers: "
            "trainer.model_wrapped), or ranks='independent' if every rank is "
            "a worker of its own")


class Mesh:
    """Where this rank stands among the shards of an FSDP2 model."""

    def __init__(self, mesh: Any, model: nn.Module) -> None:
        self.rank: int = mesh.get_local_rank()
        self.size: int = mesh.size()
        self._sharded: list[Any] = [m for m in model.modules()
                                    if hasattr(m, "reshard")]

    def reshard(self) -> None:
        """A forward pass without a backward pass (validation) leaves whole
        parameters in the modules, in place of this rank's shards."""
        for module in self._sharded:
            module.reshard()

    def name(self, name: str, t: Tensor) -> str:
        """Shards are entries of their own: ``weight@0.1of4`` is the second of
        four along dimension 0. The mesh is part of every name, so a center of
        another one refuses this worker."""
        dim = t.placements[0].dim if hasattr(t, "placements") else "-"
        return f"{name}@{dim}.{self.rank}of{self.size}"


def mesh_of(model: nn.Module) -> Optional[Mesh]:
    """The mesh of FSDP2's parameters; None without any."""
    found, plain = None, None
    for name, p in model.named_parameters():
        if not hasattr(p, "placements"):
            plain = name
            continue
        mesh = p.device_mesh  # type: ignore[attr-defined]
        placed = p.placements
        if (mesh.ndim != 1 or len(placed) != 1 or not placed[0].is_shard()
                or type(placed[0]).__name__ != "Shard"):
            raise HookeError(f"{name} has placement {tuple(placed)} on a mesh "
                             f"of {mesh.ndim} dimensions; the only DTensors "
                             "that can be exchanged are shards of FSDP2 "
                             "(fully_shard over one dimension)")
        if found is not None and mesh != found:
            raise HookeError(f"{name} is sharded over another mesh than the "
                             "parameters before it; use one mesh for the "
                             "whole model")
        found = mesh
    if found is None:
        return None
    if plain is not None:
        raise HookeError(f"{plain} is not sharded, but other parameters are; "
                         "also shard the root of the model "
                         "(fully_shard(model))")
    return Mesh(found, model)
