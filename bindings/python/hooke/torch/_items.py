"""What of a model is exchanged: one item per tensor, each element once."""
from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Literal, Optional, Sequence, Union

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .. import _c
from .._errors import HookeError
from .._exchange import Entry
from .._observe import TIED, UNSAVED

log = logging.getLogger("hooke")

Share = Literal["average", "copy", "local"]
ShareFn = Callable[[str, Tensor], Union[Share, bool, None]]

# Components that wrappers of a part of the model put into names.
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
# Integers and flags travel as one of the library's types.
_SIDE = {torch.bool: (_c.HK_BOOL, torch.bool), torch.uint8: (_c.HK_U8, torch.uint8),
         torch.int8: (_c.HK_I32, torch.int32), torch.int16: (_c.HK_I32, torch.int32),
         torch.int32: (_c.HK_I32, torch.int32), torch.int64: (_c.HK_I64, torch.int64)}
_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def unwrapped(model: nn.Module) -> tuple[nn.Module, str]:
    """The model inside of DDP and torch.compile, and what these put before its
    names."""
    prefix = ""
    while True:
        name = ("module" if isinstance(model, (
            nn.parallel.DistributedDataParallel, nn.DataParallel))
            else "_orig_mod")
        inner = getattr(model, name, None)
        if not isinstance(inner, nn.Module):
            return model, prefix
        model, prefix = inner, f"{prefix}{name}."


def plain_name(name: str) -> str:
    """The name without what torch.compile, FSDP and checkpointing of a part of
    the model have put into it."""
    return ".".join(p for p in name.split(".") if p not in _WRAPPERS)


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
    plain: str = ""  # the name in the model; shards of FSDP2 have others

    def tensor(self) -> Tensor:
        """The memory to read and write: the local shard of a DTensor, complex
        numbers as pairs of floats."""
        t = local_part(self.find())
        if t.is_complex():
            t = torch.view_as_real(t.detach())
        if self.shape and tuple(t.shape) != self.shape:
            raise HookeError(f"{self.name} had shape {self.shape} at join, "
                             f"but has {tuple(t.shape)} now")
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


def _by_owner(model: nn.Module) -> Iterator[tuple[str, Any, str, bool]]:
    """Name, the dict of the module that holds it, its key there, and whether
    it is a parameter; tied ones once."""
    seen: set[int] = set()
    for prefix, owner in model.named_modules(remove_duplicate=True):
        dot = prefix + "." if prefix else ""
        for store, trainable in ((owner._parameters, True),
                                 (owner._buffers, False)):
            for key, t in store.items():
                if t is None or id(t) in seen:
                    continue
                seen.add(id(t))
                yield dot + key, store, key, trainable


def find_in(store: Any, key: str) -> Callable[[], Tensor]:
    def find() -> Tensor:
        found = store.get(key)
        if found is None:
            raise HookeError(f"{key} was removed from the model after join; "
                             "leave, and join with the model as it is now")
        return found  # type: ignore[no-any-return]
    return find


def _stays(name: str, t: Tensor) -> bool:
    """Whether a buffer holds numbers that have no average: a causal mask's
    -inf."""
    if not t.is_floating_point() or t.device.type == "meta":
        return False
    odd = local_part(t).detach().float().isfinite().logical_not()
    if not bool(odd.any()):
        return False
    log.warning("buffer %s has the value %g and is not exchanged; share= can "
                "change that", name, local_part(t).detach()[odd][0].item())
    return True


def _decide(name: str, t: Tensor, share: Optional[ShareFn],
            trainable: bool) -> Share:
    integer = t.dtype in _SIDE
    said = share(name, t) if share is not None else None
    if said is None and not trainable and _stays(name, t):
        return "local"
    if said is None or said is True:
        return "copy" if integer else "average"
    if said is False:
        return "local"
    if said not in ("average", "copy", "local"):
        raise HookeError(f"share returned {said!r} for {name}; it has to "
                         "return 'average', 'copy', 'local' or None")
    if said == "average" and integer:
        raise HookeError(f"share returned 'average' for {name}, which is of "
                         f"type {t.dtype}; integers can be 'copy' or 'local'")
    return said


def _check(name: str, t: Tensor) -> None:
    if is_lazy(t):
        raise HookeError(f"{name} has no shape yet; run a batch through the "
                         "model before join")
    local = local_part(t)
    if local.device.type == "meta" or local.layout is not torch.strided:
        raise HookeError(f"{name} has no memory that can be exchanged (device "
                         f"{local.device}, layout {local.layout}); give it "
                         "dense memory before join")
    if (local.dtype not in _FLOATS and local.dtype not in _SIDE
            and local.dtype is not torch.complex64):
        raise HookeError(f"{name} is of type {local.dtype}, which cannot be "
                         "exchanged; share=lambda name, t: False leaves such "
                         "tensors out")
    if any(s == 0 and n > 1 for s, n in zip(local.stride(), local.shape)):
        raise HookeError(f"{name} is an expanded tensor, whose elements share "
                         "memory; replace it by a copy, or leave it out with "
                         "share=")


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
                raise HookeError(f"{item.name} and {other.name} overlap in "
                                 "memory; leave one of them out with share=")
        others.append((item, t))
        kept.append(item)
    return kept


def collect(model: nn.Module, share: Optional[ShareFn],
            rename: Callable[[str, Tensor], str]) -> list[Item]:
    """The model's items in the order of its modules."""
    items: list[Item] = []
    names: set[str] = set()
    unsaved = {f"{prefix}.{key}" if prefix else key
               for prefix, m in model.named_modules()
               for key in m._non_persistent_buffers_set}
    for raw, store, key, trainable in _by_owner(model):
        name, t = plain_name(raw), store[key]
        decided = _decide(name, t, share, trainable)
        if decided == "local":
            continue
        _check(name, t)
        saved = rename(name, t)
        if raw in unsaved:
            saved = UNSAVED + saved
        if saved in names:
            raise HookeError(f"two tensors of the model have the name {saved}")
        names.add(saved)
        item = Item(saved, find_in(store, key), decided, trainable, plain=name)
        item.shape = tuple(item.tensor().shape)
        items.append(item)
    items = _once(items)
    if not any(i.trainable for i in items):
        raise HookeError("the model has no parameter to exchange"
                         + (", because share= left out all of them"
                            if share else ""))
    return items


def other_names(model: nn.Module, items: Sequence[Item],
                rename: Callable[[str, Tensor], str]) -> list[Entry]:
    """Names of the model's state that are another tensor's in memory, for those
    who load the center's values into such a model."""
    def place(t: Tensor) -> tuple[Any, ...]:
        t = local_part(t)
        return t.data_ptr(), t.shape, t.stride(), t.dtype

    found = {place(i.find()): i.name for i in items if i.find().numel() > 0}
    known = {i.plain for i in items}
    out = []
    for raw, t in model.state_dict(keep_vars=True).items():
        name = plain_name(raw)
        if not isinstance(t, Tensor) or name in known:
            continue
        other = found.get(place(t)) if t.numel() > 0 else None
        if other is not None:
            out.append(Entry(f"{TIED}{rename(name, t)}={other}", (0,),
                             kind=_c.HK_STATE_COPY))
    return out


class Joined:
    """What model and optimizer consisted of at join: what was added to them or
    replaced since then is not exchanged."""

    def __init__(self, model: nn.Module, items: Sequence[Item],
                 share: Optional[ShareFn],
                 optimizer: Optional[torch.optim.Optimizer]) -> None:
        self._model, self._share, self._optimizer = model, share, optimizer
        self._shared = {i.plain for i in items}
        self._seen = self._look()
        self._found = self._tensors()
        self._moved = self._optimized()
        self._reported: set[str] = set()

    def _look(self) -> list[Any]:
        """Modules and parameters, kept so that none of them gets the memory of
        one that is gone."""
        seen: list[Any] = []
        for m in self._model.modules():
            seen.append(m)
            seen += m._parameters.values()
        return seen

    def _tensors(self) -> dict[str, tuple[Any, Tensor, bool]]:
        """By plain name: the dict of the module that holds it, the tensor, and
        whether it is a parameter."""
        return {plain_name(name): (store, store[key], trainable)
                for name, store, key, trainable in _by_owner(self._model)}

    def _optimized(self) -> dict[int, tuple[str, Tensor]]:
        groups = self._optimizer.param_groups if self._optimizer else []
        return {id(p): (f"parameter {i} of the optimizer's group {k}", p)
                for k, g in enumerate(groups) for i, p in enumerate(g["params"])}

    def moves(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether an optimizer moves a tensor of the one that joined."""
        return any(id(p) in self._moved for g in optimizer.param_groups
                   for p in g["params"])

    def new_changes(self, more: Sequence[str]) -> list[str]:
        """Changes, and those that the caller found, which were not reported
        before."""
        now, moved = self._look(), self._optimized()
        found = []
        if len(now) != len(self._seen) or any(
                a is not b for a, b in zip(now, self._seen)):
            found = [*self._added(), *self._replaced(set(moved))]
        mine = {id(t) for t in now}
        found += [f"{where} {tuple(p.shape)} is not the model's"
                  for i, (where, p) in moved.items()
                  if i not in self._moved and i not in mine]
        fresh = [f for f in [*found, *more] if f not in self._reported]
        self._reported.update(fresh)
        return fresh

    def _added(self) -> Iterator[str]:
        stores = {id(m._buffers) for m in self._seen if isinstance(m, nn.Module)}
        for name, (store, t, trainable) in self._tensors().items():
            if name in self._found or (not trainable and id(store) in stores):
                continue
            if self._share is None or self._share(name, t) not in (
                    False, "local"):
                yield f"{name} {tuple(t.shape)} was added"

    def _replaced(self, moved: set[int]) -> Iterator[str]:
        now = self._tensors()
        for name, (store, t, trainable) in self._found.items():
            if name not in self._shared:
                continue
            if name not in now:
                if trainable:
                    yield f"{name} was removed, or tied to another"
                continue
            its, new, _ = now[name]
            if its is not store or (trainable and new is not t and (
                    new.shape != t.shape
                    or (id(t) in moved and id(new) not in moved))):
                yield f"{name} {tuple(new.shape)} was replaced"
