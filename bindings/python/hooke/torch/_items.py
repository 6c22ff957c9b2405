"""What of a model is exchanged: one item per tensor, each element once."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterator, Literal, Optional, Sequence, Union

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .. import _c
from .._errors import HookeError
from .._exchange import Entry
from .._observe import OPTIMIZER

Share = Literal["average", "copy", "local"]
ShareFn = Callable[[str, Tensor], Union[Share, bool, None]]

# Components that wrappers put into names.
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
# Integers and flags travel as one of the library's types.
_SIDE = {torch.bool: (_c.HK_BOOL, torch.bool), torch.uint8: (_c.HK_U8, torch.uint8),
         torch.int8: (_c.HK_I32, torch.int32), torch.int16: (_c.HK_I32, torch.int32),
         torch.int32: (_c.HK_I32, torch.int32), torch.int64: (_c.HK_I64, torch.int64)}
_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def plain_name(name: str) -> str:
    """The name without what torch.compile, DDP and FSDP have put into it."""
    parts = [p for p in name.split(".") if p not in _WRAPPERS]
    while len(parts) > 1 and parts[0] == "module":
        parts = parts[1:]
    return ".".join(parts)


def local_part(t: Any) -> Tensor:
    """The shard of a DTensor that lives here; other tensors as they are."""
    part: Tensor = t.to_local() if hasattr(t, "to_local") else t
    return part


@dataclass
class Item:
    """A tensor of the model, found again by its owner: modules may replace
    their buffers."""

    name: str
    find: Callable[[], Tensor]
    share: Share
    trainable: bool
    shape: tuple[int, ...] = ()

    def tensor(self) -> Tensor:
        """The memory to read and write: the local shard of a DTensor, complex
        numbers as pairs of floats."""
        t = local_part(self.find())
        if t.is_complex():
            t = torch.view_as_real(t.detach())
        if self.shape and tuple(t.shape) != self.shape:
            raise HookeError(f"{self.name} was {self.shape} at join and is "
                             f"{tuple(t.shape)}")
        return t.detach()

    def side_type(self) -> Optional[tuple[int, torch.dtype]]:
        """None for floats."""
        return _SIDE.get(self.tensor().dtype)

    def entry(self) -> Entry:
        """What the center knows of it."""
        t = self.tensor()
        side = self.side_type()
        if side is not None:
            return Entry(self.name, tuple(t.shape), side[0], _c.HK_STATE_COPY)
        kind = (_c.HK_STATE_COPY if self.share == "copy" else
                _c.HK_TRAINABLE if self.trainable else _c.HK_STATE_AVERAGE)
        return Entry(self.name, tuple(t.shape), _c.HK_F32, kind)


def _by_owner(model: nn.Module) -> Iterator[tuple[str, Callable[[], Tensor], bool]]:
    """Name, how to find it, and whether it is a parameter; tied ones once."""
    seen: set[int] = set()
    for prefix, owner in model.named_modules(remove_duplicate=True):
        dot = prefix + "." if prefix else ""
        for store, trainable in ((owner._parameters, True),
                                 (owner._buffers, False)):
            for key, t in store.items():
                if t is None or id(t) in seen:
                    continue
                seen.add(id(t))
                yield dot + key, _finder(store, key), trainable


def _finder(store: Any, key: str) -> Callable[[], Tensor]:
    def find() -> Tensor:
        found = store[key]
        if found is None:
            raise HookeError(f"{key} has been taken out of the model since join")
        return found  # type: ignore[no-any-return]
    return find


def _decide(name: str, t: Tensor, share: Optional[ShareFn]) -> Share:
    integer = t.dtype in _SIDE
    said = share(name, t) if share is not None else None
    if said is None or said is True:
        return "copy" if integer else "average"
    if said is False:
        return "local"
    if said not in ("average", "copy", "local"):
        raise HookeError(f"share said {said!r} of {name}; it says 'average', "
                         "'copy', 'local' or None")
    if said == "average" and integer:
        raise HookeError(f"{name} is of type {t.dtype}: 'copy' or 'local', "
                         "whole numbers have no average")
    return said


def _check(name: str, t: Tensor) -> None:
    if is_lazy(t):
        raise HookeError(f"{name} has no shape yet: run a batch through the "
                         "model before join")
    local = local_part(t)
    if local.device.type == "meta" or local.layout is not torch.strided:
        raise HookeError(f"{name} has no memory of its own to exchange "
                         f"({local.device}, {local.layout})")
    if (local.dtype not in _FLOATS and local.dtype not in _SIDE
            and local.dtype is not torch.complex64):
        raise HookeError(f"{name} is of type {local.dtype}, which has no place "
                         "in an exchange; share=lambda name, t: False leaves "
                         "such tensors out")
    if any(s == 0 and n > 1 for s, n in zip(local.stride(), local.shape)):
        raise HookeError(f"{name} is expanded: several of its elements are one "
                         "number in memory")


def _elements(t: Tensor) -> Tensor:
    """The places of its storage that a tensor covers, in rising order."""
    start = t.storage_offset()
    last = start + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
    index = torch.arange(last + 1).as_strided(t.shape, t.stride(), start)
    return index.reshape(-1).sort().values


def _once(items: list[Item]) -> list[Item]:
    """Without tensors that are another one in memory. Some that share a part
    only would be exchanged twice there: refused."""
    groups: dict[tuple[int, torch.dtype], list[tuple[Item, Tensor]]] = {}
    kept = []
    for item in items:
        t = item.tensor()
        if t.numel() == 0:
            kept.append(item)
            continue
        others = groups.setdefault((t.untyped_storage().data_ptr(), t.dtype), [])
        if any((t.storage_offset(), t.shape, t.stride())
               == (o.storage_offset(), o.shape, o.stride()) for _, o in others):
            continue  # tied
        for other, o in others:
            if bool(torch.isin(_elements(t), _elements(o)).any()):
                raise HookeError(f"{item.name} and {other.name} share a part "
                                 "of their memory; leave one of them out with "
                                 "share=")
        others.append((item, t))
        kept.append(item)
    return kept


def collect(model: nn.Module, share: Optional[ShareFn],
            rename: Callable[[str, Tensor], str]) -> list[Item]:
    """The model's items in the order of its modules."""
    items: list[Item] = []
    names: set[str] = set()
    for raw, find, trainable in _by_owner(model):
        name, t = plain_name(raw), find()
        decided = _decide(name, t, share)
        if decided == "local":
            continue
        _check(name, t)
        name = rename(name, t)
        if name in names:
            raise HookeError(f"two tensors of the model are called {name}")
        names.add(name)
        item = Item(name, find, decided, trainable)
        item.shape = tuple(item.tensor().shape)
        items.append(item)
    items = _once(items)
    if not any(i.trainable for i in items):
        raise HookeError("the model has no parameter to exchange"
                         + (": share= left out all of them" if share else ""))
    return items


def moments(items: Sequence[Item], optimizer: torch.optim.Optimizer) -> list[Item]:
    """The optimizer's state of these parameters, to be copied."""
    made = []
    for item in items:
        state = optimizer.state.get(item.find()) if item.trainable else None
        for slot, value in (state or {}).items():
            if isinstance(value, Tensor):
                found = Item(f"{OPTIMIZER}{item.name}/{slot}",
                             _finder(state, slot), "copy", False)
                found.shape = tuple(found.tensor().shape)
                made.append(found)
    return made
