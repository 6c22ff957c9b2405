"""A worker's share of a dataset."""
from __future__ import annotations

from collections import deque
from typing import Any, Iterator, Optional, Sized

import torch
from torch.utils.data import Sampler

from .._ranges import Range, Ranges
from .._thread import Call


def _order(n: int, shuffle: bool, seed: int, epoch: int) -> Any:
    if not shuffle:
        return range(n)
    g = torch.Generator()
    g.manual_seed(((seed << 20) + epoch) & (2**63 - 1))
    return torch.randperm(n, generator=g).tolist()


class ShareSampler(Sampler[int]):
    """Every ``parts``-th example of an order that seed and epoch decide, the
    same in every worker: shares do not overlap and together are the dataset.
    Each pass is the next epoch."""

    def __init__(self, dataset: Sized, part: int, parts: int, *,
                 shuffle: bool = True, seed: int = 0) -> None:
        self._n = len(dataset)
        self._part, self._parts = part, parts
        self._shuffle, self._seed = shuffle, seed
        self.epoch = 0
        self.position = 0  # handed out in this epoch

    def __len__(self) -> int:
        return len(range(self._part, self._n, self._parts))

    def set_epoch(self, epoch: int) -> None:
        """Goes on with the beginning of an epoch."""
        self.epoch, self.position = epoch, 0

    def __iter__(self) -> Iterator[int]:
        order = _order(self._n, self._shuffle, self._seed, self.epoch)
        mine = order[self._part::self._parts]
        for i in range(self.position, len(mine)):
            self.position = i + 1
            yield mine[i]
        self.set_epoch(self.epoch + 1)

    def state_dict(self) -> dict[str, int]:
        """Where it is; examples that a DataLoader has fetched ahead count."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on from there."""
        self.epoch, self.position = state["epoch"], state["position"]


class _Held:
    """A range of which examples were given out."""

    def __init__(self, r: Range, before: int) -> None:
        self.range = r
        self.before = before  # given out before it, of all ranges
        self.given = r.used

    def used(self, total: int) -> int:
        """How many of it, when so many of all were used."""
        mine = min(max(total - self.before, 0), self.given - self.range.used)
        return self.range.used + mine

    def is_used(self, total: int) -> bool:
        return self.used(total) >= self.range.end - self.range.begin


class LeasedSampler(Sampler[int]):
    """The ranges of a dataset that the center lends to this worker: together
    the workers go over every example once an epoch, whoever comes, goes or
    dies. A pass ends where the next epoch begins; each worker has as much of it
    as it is fast.

    What was trained on counts with the exchange behind it. A DataLoader fetches
    ahead, by as many examples as it asked for before the first step and not
    for that: so many are not used yet.
    """

    def __init__(self, ranges: Ranges, dataset: Sized, *, shuffle: bool,
                 workers: int) -> None:
        self._ranges = ranges
        self._n = len(dataset)
        self._shuffle = shuffle
        self._workers = workers
        self.epoch = 0
        self._held: "deque[_Held]" = deque()
        self._next: Optional[Call] = None  # the range after this one
        self._kept: Optional[Range] = None  # of the epoch to come
        self._given = 0  # of all ranges
        self._used = 0
        self._at_step = 0  # given at the last step
        self._least = 0  # examples of a step, at least; 0: not known yet
        self._ahead = 0  # fetched and not used
        self._steps = 0  # of this pass
        self._ended = False  # this pass gives no more

    def __len__(self) -> int:
        """About: workers take as much as they are fast."""
        return -(-self._n // self._workers)

    def set_epoch(self, epoch: int) -> None:
        """The center counts epochs."""

    # ---- giving out

    def _take(self) -> Range:
        if self._kept is not None:
            r, self._kept = self._kept, None
            return r
        call = self._next or self._ranges.take()
        self._next = None
        found: Range = call.result()
        self._next = self._ranges.take()
        return found

    def _begin_pass(self) -> None:
        """The loop has come back: what it got before it has used."""
        self._used = self._at_step = self._given
        self._least = self._ahead = self._steps = 0
        self._ended = False
        self._count()

    def __iter__(self) -> Iterator[int]:
        self._begin_pass()
        order: Any = None
        order_of = -1
        while True:
            if not self._held or self._all_given(self._held[-1]):
                r = self._take()
                if r.epoch > self.epoch:
                    self._kept = r
                    self.epoch, self._ended = r.epoch, True
                    return
                self._held.append(_Held(r, self._given))
            held = self._held[-1]
            r = held.range
            if order_of != r.epoch:
                order = _order(self._n, self._shuffle, self._ranges.seed,
                               r.epoch)
                order_of = r.epoch
            while not self._all_given(held):
                at = r.begin + held.given
                held.given += 1
                self._given += 1
                yield order[at]

    @staticmethod
    def _all_given(held: _Held) -> bool:
        return held.given >= held.range.end - held.range.begin

    # ---- counting

    def stepped(self) -> None:
        """The optimizer has made a step."""
        more = self._given - self._at_step
        self._steps += 1
        if self._steps == 1:
            self._ahead = more  # and the step's own, until that is known
        elif more > 0 and not self._ended:
            least = min(self._least or more, more)
            if self._least == 0:
                self._ahead -= least
            else:
                self._ahead += self._least - least
            self._least = least
        if self._least > 0 and self._ended:
            self._used = min(self._used + self._least, self._given)
        elif self._least > 0:
            self._used = max(self._used, self._given - self._ahead)
        self._at_step = self._given
        self._count()

    def _count(self) -> None:
        while self._held and self._held[0].is_used(self._used):
            self._ranges.use(self._held.popleft().range.id)

    def give_back(self) -> None:
        """The worker leaves, and its last steps were exchanged."""
        if self._ended and self._least == 0 and self._steps > 0:
            self._used = self._given  # too short a pass to see more
        self._count()
        while self._held:
            held = self._held.popleft()
            self._ranges.give_back(held.range.id, held.used(self._used))
        self._next = self._kept = None
        self._ranges.give_back()

    def state_dict(self) -> dict[str, Any]:
        """Where it is: the epoch, and what it holds."""
        return {"epoch": self.epoch,
                "lease": [(*h.range[:4], h.used(self._used))
                          for h in self._held]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on in that epoch. Ranges are the center's: one that was out to
        a process that ended has gone back to it."""
        self.epoch = state["epoch"]
