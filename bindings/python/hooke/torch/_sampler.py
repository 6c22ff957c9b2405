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


class _Counted(Sampler[int]):
    """Counts the examples that were given out and those that were used.

    A DataLoader fetches ahead, by as many examples as it asked for before the
    first step and not for that: so many are not used yet. Without a step in a
    pass, everything that was given out is used.
    """

    def __init__(self) -> None:
        self._given = 0  # in all passes
        self._used = 0
        self._at_step = 0  # given at the last step
        self._least = 0  # examples of a step, at least; 0: not known yet
        self._ahead = 0  # fetched and not used
        self._steps = 0  # of this pass
        self._ended = False  # this pass gives no more

    def _begin_pass(self) -> None:
        """The loop has come back. It has used what it got, unless it left a
        pass before the end: then what the DataLoader had fetched ahead is
        given out again."""
        if self._ended or self._least == 0:
            self._used = self._given
        self._given = self._at_step = self._used
        self._least = self._ahead = self._steps = 0
        self._ended = False

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


class ShareSampler(_Counted):
    """Every ``parts``-th example in an order that seed and epoch determine. The
    order is the same in every worker, so the shares do not overlap and together
    are the data set. Each pass is the next epoch."""

    def __init__(self, dataset: Sized, part: int, parts: int, *,
                 shuffle: bool = True, seed: int = 0) -> None:
        super().__init__()
        self.made_of = len(dataset), part, parts, shuffle, seed
        self._n = len(dataset)
        self._part, self._parts = part, parts
        self._shuffle, self._seed = shuffle, seed
        self.set_epoch(0)

    def __len__(self) -> int:
        return len(range(self._part, self._n, self._parts))

    def set_epoch(self, epoch: int) -> None:
        """Continues with the beginning of an epoch."""
        self._begin_at(epoch, 0)

    def _begin_at(self, epoch: int, position: int) -> None:
        self._begin_pass()
        self.epoch = self._pass = epoch
        self._start = position
        self._before = self._given  # the pass

    def __iter__(self) -> Iterator[int]:
        self._begin_pass()
        self._begin_at(*self._place())
        order = _order(self._n, self._shuffle, self._seed, self.epoch)
        for example in order[self._part::self._parts][self._start:]:
            self._given += 1
            yield example
        self.epoch, self._ended = self._pass + 1, True

    def _place(self) -> tuple[int, int]:
        used = self._used if self._steps > 0 else self._given
        if self._ended and self._given - used < self._least:
            used = self._given  # the rest that a DataLoader drops
        position = self._start + used - self._before
        return (self._pass, position) if position < len(self) else (
            self._pass + 1, 0)

    def state_dict(self) -> dict[str, int]:
        """The epoch and the number of its used examples, without those that a
        DataLoader has only fetched ahead."""
        epoch, position = self._place()
        return {"epoch": epoch, "position": position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on from there."""
        self._begin_at(state["epoch"], state.get("position", 0))


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

    def is_given(self) -> bool:
        return self.given >= self.range.end - self.range.begin

    def give_again(self, total: int) -> None:
        """Examples that were given out and not used are to be given out."""
        self.given = self.used(total)


class LeasedSampler(_Counted):
    """The ranges of a data set that the center leases to this worker. Together
    the workers use every example once per epoch, even if workers join, leave
    or die.

    A pass begins in the center's current epoch. It ends at the end of the
    epoch, or after ``len(sampler)`` examples; in that case the next pass
    continues the same epoch. Examples count as used when the exchange that
    follows the step on them is acknowledged.
    """

    def __init__(self, ranges: Ranges, dataset: Sized, *, shuffle: bool,
                 seed: int, workers: int) -> None:
        super().__init__()
        self.made_of = len(dataset), shuffle, seed
        self._ranges = ranges
        self._n = len(dataset)
        self._shuffle = shuffle
        self._workers = workers
        self.epoch = 0  # the last one that the next pass takes ranges of
        self._follows = False  # epoch is known from the center
        self._held: "deque[_Held]" = deque()
        self._next: Optional[Call] = None  # the range after this one
        self._kept: Optional[Range] = None  # of the epoch to come

    def __len__(self) -> int:
        """Largest number of examples in a pass: this worker's share of the
        data set, or all examples if ``workers=`` is unknown."""
        return -(-self._n // self._workers)

    def set_epoch(self, epoch: int) -> None:
        """Has no effect: the center counts epochs."""

    # ---- giving out

    def _take(self) -> Range:
        if self._kept is not None:
            r, self._kept = self._kept, None
            return r
        call = self._next or self._ranges.take()
        self._next = None
        found: Range = call.result()
        return found

    def _find_held(self, first: bool) -> Optional[_Held]:
        """A range with examples to give out; None where the pass ends. first:
        the pass has given out none."""
        for held in self._held:
            if not held.is_given():
                return held
        r = self._take()
        if first and (r.epoch > self.epoch or not self._follows):
            self.epoch, self._follows = r.epoch, True
        if r.epoch > self.epoch:
            self._kept, self.epoch = r, r.epoch
            return None
        self._held.append(_Held(r, self._given))
        return self._held[-1]

    def __iter__(self) -> Iterator[int]:
        self._begin_pass()
        for held in self._held:
            held.give_again(self._used)
        self._count()
        order: Any = None
        order_of, left = -1, len(self)
        while left > 0:
            found = self._find_held(left == len(self))
            if found is None:
                break
            r = found.range
            if self._next is None and left > r.end - r.begin - found.given:
                self._next = self._ranges.take()
            if order_of != r.epoch:
                order = _order(self._n, self._shuffle, self._ranges.seed,
                               r.epoch)
                order_of = r.epoch
            while left > 0 and not found.is_given():
                at = r.begin + found.given
                found.given += 1
                self._given += 1
                left -= 1
                yield order[at]
        if left == 0:
            self.epoch += 1
        self._ended = True

    # ---- counting

    def stepped(self) -> None:
        """The optimizer has made a step."""
        super().stepped()
        self._count()

    def _count(self) -> None:
        while self._held and self._held[0].is_used(self._used):
            self._ranges.use(self._held.popleft().range.id)

    def give_back(self) -> None:
        """The worker leaves, and its last steps were exchanged: examples of
        its ranges that it did not use are for others."""
        if self._ended and self._least == 0 and self._steps > 0:
            self._used = self._given  # too short a pass to see more
        self._count()
        while self._held:
            held = self._held.popleft()
            self._ranges.give_back(held.range.id, held.used(self._used))
        self._next = self._kept = None

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and the ranges that it holds."""
        return {"epoch": self.epoch,
                "lease": [(*h.range[:4], h.used(self._used))
                          for h in self._held]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on in the center's current epoch. Ranges are the center's: one
        that a process had which ended has gone back to it."""
        self.epoch, self._follows = state["epoch"], False
