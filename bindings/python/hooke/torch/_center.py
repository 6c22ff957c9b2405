"""The center's values as tensors, and checkpoints of tensors."""
from __future__ import annotations

import re
from typing import Any, Callable, Mapping, Optional

import numpy as np
import torch
from torch import Tensor, nn

from .._checkpoint import Path, read, write
from .._errors import HookeError
from .._observe import center_arrays
from .._options import Addresses, KeyLike, addresses_of
from .._spawn import spawn as spawn_arrays
from ._items import plain_name, unwrapped

_SHARD = re.compile(r"(.*)@(-|\d+)\.(\d+)of(\d+)")


def _whole(parts: "list[dict[str, np.ndarray[Any, Any]]]"
           ) -> "dict[str, np.ndarray[Any, Any]]":
    """Shards of FSDP2 workers put together under their plain names."""
    found: dict[str, dict[int, np.ndarray[Any, Any]]] = {}
    dims: dict[str, tuple[str, int]] = {}
    for part in parts:
        for name, a in part.items():
            m = _SHARD.fullmatch(name)
            if m is None:
                raise HookeError(f"{name} is not a shard of an FSDP2 model; "
                                 "read centers with different models one at "
                                 "a time")
            found.setdefault(m.group(1), {})[int(m.group(3))] = a
            dims[m.group(1)] = m.group(2), int(m.group(4))
    out = {}
    for name, shards in found.items():
        dim, size = dims[name]
        missing = [i for i in range(size) if i not in shards]
        if missing:
            raise HookeError(f"shards {missing} of {name} are missing; give "
                             "the addresses of all centers")
        out[name] = (shards[0] if dim == "-" else np.concatenate(
            [shards[i] for i in range(size)], int(dim)))
    return out


def center_state_dict(center: Optional[Addresses] = None,
                      key: Optional[KeyLike] = None, *,
                      model: Optional[nn.Module] = None, average: bool = False,
                      insecure: bool = False, seconds: float = 60.0
                      ) -> dict[str, Tensor]:
    """A consistent copy of the center's values under the model's plain names,
    for evaluation and saving during training. A model like the one that joined
    can load it with strict=True.

    model    a model that will load the values: the result has its names (also
             with DDP and torch.compile) and types, and takes from its state
             the values that the center does not have (left out by share=)
    average  returns the average of the methods downpour_averaged and
             downpour_moving instead

    For an FSDP2 model give the addresses of all centers; the result has whole
    tensors.
    """
    addresses = addresses_of(center)
    arrays = center_arrays(addresses[0], key, insecure=insecure,
                           seconds=seconds, average=average)
    if any(_SHARD.fullmatch(n) for n in arrays):
        arrays = _whole([arrays] + [
            center_arrays(a, key, insecure=insecure, seconds=seconds,
                          average=average) for a in addresses[1:]])
    elif len(addresses) > 1:
        raise HookeError("several addresses are only for a model in shards "
                         "(FSDP2); give one address")
    found = {n: torch.from_numpy(a) for n, a in arrays.items()}
    return found if model is None else _filled(found, model)


def _filled(found: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    inner, prefix = unwrapped(model)
    own = {n: t for n, t in inner.state_dict().items() if isinstance(t, Tensor)}
    same: dict[tuple[Any, ...], Tensor] = {}  # a tied one, by its memory
    out = {}
    for name, t in own.items():
        place = (t.data_ptr(), t.shape, t.stride(), t.dtype)
        value = found.get(plain_name(name))
        if value is not None:
            if t.is_complex():
                value = torch.view_as_complex(value)
            same[place] = value.to(t.dtype)
    for name, t in own.items():
        place = (t.data_ptr(), t.shape, t.stride(), t.dtype)
        out[prefix + name] = same.get(place, t.detach().cpu())
    return out


def load(path: Path, *, everything: bool = False, key: Optional[KeyLike] = None,
         insecure: bool = False, seconds: float = 60.0,
         max_bytes: Optional[int] = None) -> dict[str, Tensor]:
    """The tensors of a checkpoint or of the center of a model_dir; see
    ``hooke.load``. bfloat16 is kept."""
    out = {}
    for name, kind, a in read(path, everything, key=key, insecure=insecure,
                              seconds=seconds, max_bytes=max_bytes):
        if a.dtype == object:
            continue  # strings have no tensor
        t = torch.from_numpy(a)
        out[name] = t.bfloat16() if kind in ("BF16", "DT_BFLOAT16") else t
    return out


def save(path: Path, tensors: Mapping[str, Tensor],
         metadata: Optional[Mapping[str, str]] = None) -> None:
    """Writes tensors; see ``hooke.save``."""
    arrays, half = {}, set()
    for name, t in tensors.items():
        t = t.detach().cpu().contiguous()
        if t.dtype is torch.bfloat16:
            half.add(name)
            t = t.view(torch.int16)
        arrays[name] = t.numpy()
    write(path, arrays, half, metadata)


def spawn(function: Callable[..., Any], workers: int, args: tuple[Any, ...] = (),
          *, method: str = "elastic", outer: Optional[Mapping[str, Any]] = None
          ) -> dict[str, Tensor]:
    """``hooke.spawn`` with the center's values as tensors."""
    try:
        found = spawn_arrays(function, workers, args, method=method, outer=outer)
    except HookeError as error:
        if error.values is not None:
            error.values = {n: torch.from_numpy(a)
                            for n, a in error.values.items()}
        raise
    return {n: torch.from_numpy(a) for n, a in found.items()}
