"""A worker's share of a dataset."""
from __future__ import annotations

from typing import Any, Iterator, Sized

import torch
from torch.utils.data import Sampler


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

    def _order(self) -> Any:
        if not self._shuffle:
            return range(self._n)
        g = torch.Generator()
        g.manual_seed((self._seed << 20) + self.epoch)
        return torch.randperm(self._n, generator=g).tolist()

    def __iter__(self) -> Iterator[int]:
        mine = self._order()[self._part::self._parts]
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
