"""Between a model's tensors and the flat vector that is exchanged.

In place: gather, exchange, scatter. Overlapped: gather, then the difference of
an exchange beside the next steps, then subtract. Parameters of 16 bits have an
fp32 master beside them, which takes in what the optimizer did and what the
exchanges did: neither is lost to rounding. Those of 64 bits keep their own
precision and move by what the exchange changed.
"""
from __future__ import annotations

import logging
from typing import Any, Optional, Union

import torch
from torch import Tensor

from .. import _c
from .._errors import HookeError
from .._exchange import Layout
from ._items import Item, local_part

log = logging.getLogger("hooke")
cuda: Any = torch.cuda  # its streams and events have no types
HALF = (torch.bfloat16, torch.float16)


class _Half:
    """A 16-bit tensor, its master, and what was last written to it."""

    def __init__(self, item: Item, view: Tensor) -> None:
        t = item.tensor()
        self.item, self.view = item, view
        self.master = t.float()
        self.seen = t.clone()

    def take_in(self) -> Tensor:
        """The master follows what the optimizer has done since."""
        t = self.item.tensor()
        self.master.add_(t.float() - self.seen.float())
        self.seen.copy_(t)
        return t

    def gather(self) -> None:
        self.take_in()
        self.view.copy_(self.master)

    def _write(self, t: Tensor) -> None:
        t.copy_(self.master)
        self.seen.copy_(t)

    def scatter(self) -> None:
        self.master.copy_(self.view)
        self._write(self.item.tensor())

    def subtract(self) -> None:
        t = self.take_in()
        self.master.sub_(self.view.to(t.device))
        self._write(t)


class _Wide:
    """A 64-bit tensor."""

    def __init__(self, item: Item, view: Tensor) -> None:
        self.item, self.view = item, view
        self.before = torch.zeros_like(view)

    def gather(self) -> None:
        self.view.copy_(self.item.tensor())
        self.before.copy_(self.view)

    def scatter(self) -> None:
        t = self.item.tensor()
        t.add_((self.view.double() - self.before.double()).to(t.device))

    def subtract(self) -> None:
        t = self.item.tensor()
        t.sub_(self.view.to(t.device))


def _copy(to: list[Tensor], of: list[Tensor]) -> None:
    """All at once where they are on one device, which most are."""
    strange = [a.device != b.device for a, b in zip(to, of)]
    near = [i for i, far in enumerate(strange) if not far]
    if near:
        torch._foreach_copy_([to[i] for i in near], [of[i] for i in near])
    for a, b, far in zip(to, of, strange):
        if far:
            a.copy_(b)


def _pinned(n: int, dtype: torch.dtype) -> Tensor:
    try:
        return torch.zeros(n, dtype=dtype, pin_memory=True)
    except RuntimeError as error:
        log.warning("no pinned memory (%s): copies of %d bytes are "
                    "synchronous and slower", error, n)
        return torch.zeros(n, dtype=dtype)


class Values:
    """The tensors of a model as one vector in host memory."""

    def __init__(self, items: list[Item], layout: Layout) -> None:
        self.items, self.layout = items, layout
        n, side = max(layout.n, 1), max(layout.side_bytes, 1)
        self.device = self._main_device()
        self.staged = self._is_staged()
        self.host, self.host_side = self._block(n, torch.float32), \
            self._block(side, torch.uint8)
        # Where gather writes and scatter reads: there, or on the device.
        self.work, self.side = self.host, self.host_side
        if self.staged:
            self.work = torch.zeros(n, device=self.device)
            self.side = torch.zeros(side, dtype=torch.uint8, device=self.device)
            self._stream = cuda.Stream(self.device)
            self._out = cuda.Event(blocking=True)
            self._back = cuda.Event()
        self._plain: list[tuple[Item, Tensor]] = []
        self._copied: list[tuple[Item, Tensor]] = []
        self.special: list[Union[_Half, _Wide]] = []
        for item, place in zip(items, layout.places):
            self._sort_in(item, place.entry.dtype, place.offset, place.size)

    def _is_staged(self) -> bool:
        """Whether a copy in host memory stands between model and exchange."""
        return self.device.type == "cuda"

    def _main_device(self) -> torch.device:
        """The one that has most of the model."""
        sizes: dict[torch.device, int] = {}
        for item in self.items:
            t = item.tensor()
            sizes[t.device] = sizes.get(t.device, 0) + t.numel()
        return max(sizes, key=lambda d: sizes[d])

    def _block(self, n: int, dtype: torch.dtype) -> Tensor:
        if self.staged:
            return _pinned(n, dtype)
        return torch.zeros(n, dtype=dtype)

    def _view(self, item: Item, dtype: int, offset: int, count: int) -> Tensor:
        t = item.tensor()
        if dtype == _c.HK_F32:
            return self.work[offset:offset + count].view(t.shape)
        side = item.side_type()
        assert side is not None
        size = count * torch.empty((), dtype=side[1]).element_size()
        return self.side[offset:offset + size].view(side[1]).view(t.shape)

    def _sort_in(self, item: Item, dtype: int, offset: int, count: int) -> None:
        view = self._view(item, dtype, offset, count)
        kind = item.tensor().dtype
        if item.share == "copy":
            self._copied.append((item, view))
        elif kind in HALF:
            self.special.append(_Half(item, view))
        elif kind is torch.float64:
            self.special.append(_Wide(item, view))
        else:
            self._plain.append((item, view))

    # ---- on the stream of the training

    @torch.no_grad()
    def gather(self, out: bool = True) -> None:
        """From the model to the vector and, with out, on its way to host
        memory."""
        self.ready()
        both = self._plain + self._copied
        _copy([v for _, v in both], [i.tensor() for i, _ in both])
        for s in self.special:
            s.gather()
        if out and self.staged:
            self._send_out()

    @torch.no_grad()
    def scatter(self, copied: bool = False) -> None:
        """Values after an exchange in place, back to the model. copied: those
        too that are only read when somebody joins."""
        self.ready()
        both = self._plain + (self._copied if copied else [])
        _copy([i.tensor() for i, _ in both], [v for _, v in both])
        for s in self.special:
            s.scatter()

    @torch.no_grad()
    def subtract(self) -> None:
        """The difference of an exchange, off the model."""
        self.ready()
        tensors = [i.tensor() for i, _ in self._plain]
        views = [v.to(t.device) for (_, v), t in zip(self._plain, tensors)]
        if tensors:
            torch._foreach_sub_(tensors, views)
        for s in self.special:
            s.subtract()

    # ---- on a stream of its own

    def _send_out(self) -> None:
        now = cuda.current_stream(self.device)
        self._stream.wait_stream(now)
        with cuda.stream(self._stream):
            self.host.copy_(self.work, non_blocking=True)
            self.host_side.copy_(self.side, non_blocking=True)
            self._out.record(self._stream)

    def arrived(self) -> None:
        """Waits until host memory has what was gathered. Any thread."""
        if self.staged:
            self._out.synchronize()

    def send_back(self, side: bool = False) -> None:
        """Host memory to the device. Any thread, after the exchange."""
        if not self.staged:
            return
        with cuda.device(self.device), cuda.stream(self._stream):
            self.work.copy_(self.host, non_blocking=True)
            if side:
                self.side.copy_(self.host_side, non_blocking=True)
            self._back.record(self._stream)

    def ready(self) -> None:
        """The training waits, on its stream, for what was sent back."""
        if self.staged:
            cuda.current_stream(self.device).wait_event(self._back)

    # ---- gradients

    @torch.no_grad()
    def gradients(self, scale: Optional[Tensor]) -> Tensor:
        """The gradients of the step that is about to be made, in host memory:
        the layout's n_train floats. scale: what a GradScaler has left in."""
        flat = torch.zeros(max(self.layout.n_train, 1))
        for item, place in zip(self.items, self.layout.places):
            grad = item.find().grad if item.trainable else None
            if grad is None or place.offset >= self.layout.n_train:
                continue
            if grad.is_sparse:
                grad = grad.to_dense()
            grad = local_part(grad)
            if grad.is_complex():
                grad = torch.view_as_real(grad)
            if scale is not None:
                grad = grad / scale
            flat[place.offset:place.offset + place.size].view(
                grad.shape).copy_(grad)
        return flat

    @torch.no_grad()
    def add_pull(self, view: Tensor, rho: float) -> None:
        """rho/2 |x - c|^2 as a part of the loss. view: c, in host memory."""
        for item, place in zip(self.items, self.layout.places):
            p = item.find()
            if item.share != "average" or not item.trainable or p.grad is None:
                continue
            t = item.tensor()
            c = view[place.offset:place.offset + place.size].view(t.shape)
            if p.grad.is_sparse:
                raise HookeError(f"{item.name} has a sparse gradient, but the "
                                 "elastic term of rho is dense: join with "
                                 "rho=0, or create the layer without "
                                 "sparse=True")
            grad = local_part(p.grad)
            if grad.is_complex():
                grad = torch.view_as_real(grad)
            grad.add_(t - c.to(t.device, t.dtype), alpha=rho)

    # ---- state

    def masters(self) -> dict[str, Tensor]:
        """The fp32 masters by name."""
        for s in self.special:
            if isinstance(s, _Half):
                s.take_in()
        return {s.item.name: s.master for s in self.special
                if isinstance(s, _Half)}

    @torch.no_grad()
    def load_masters(self, masters: dict[str, Tensor]) -> None:
        """Masters of a checkpoint, for parameters that were loaded from it. One
        that does not round to its parameter belongs to another."""
        for s in self.special:
            if not isinstance(s, _Half):
                continue
            t, m = s.item.tensor(), masters.get(s.item.name)
            s.master.copy_(t)
            if m is not None and torch.equal(m.to(t.device, t.dtype), t):
                s.master.copy_(m)
            s.seen.copy_(t)
