"""Elastic averaging for JAX.

    import hooke.jax as hooke
    params, w = hooke.join(params, center="host:2222", period=10)
    with w:
        for batch in batches:
            params, state = train_step(params, state, batch)
            params = w.step(params)          # exchanges every period steps

Arrays of JAX do not change: every call gives new ones. A tree is flattened once
into one vector in host memory.
"""
from __future__ import annotations

from typing import Any, Optional, TypeVar

import jax
import numpy as np

from ._arrays import Flat
from ._center import Center, start_center
from ._errors import HookeError
from ._exchange import Exchange, Stats
from ._observe import center_arrays
from ._options import Addresses, KeyLike, Options
from ._spawn import spawn
from ._worker import Worker

Tree = TypeVar("Tree")


def _names(tree: Any) -> tuple[list[str], list[Any], Any]:
    """Names of the leaves, the leaves, and how they hang together."""
    found, shape = jax.tree_util.tree_flatten_with_path(tree)
    names = [jax.tree_util.keystr(path) or "x" for path, _ in found]
    return names, [leaf for _, leaf in found], shape


class JaxWorker(Worker):
    """A worker over a tree of JAX's arrays; made by ``join``."""

    def __init__(self, params: Any, options: Options, verbose: bool) -> None:
        names, leaves, self._tree = _names(params)
        self._names = names
        arrays = dict(zip(names, map(np.asarray, leaves)))
        self._flat = Flat(arrays)
        self._flat.gather(arrays)
        made = Exchange(self._flat.layout, options,
                        self._flat.values.ctypes.data,
                        self._flat.side.ctypes.data)
        super().__init__(made, verbose)

    def _leaves(self, params: Any) -> "dict[str, np.ndarray[Any, Any]]":
        leaves, tree = jax.tree_util.tree_flatten(params)
        if tree != self._tree:
            raise HookeError(f"the tree was {self._tree} at join, but is now "
                             f"{tree}")
        return dict(zip(self._names, map(np.asarray, leaves)))

    def values(self, like: Tree) -> Tree:
        """The values after the last exchange, as new arrays with the types and
        devices of ``like``."""
        views, leaves = self._flat.views(), jax.tree_util.tree_leaves(like)
        made = [_as(leaf, views[name])
                for name, leaf in zip(self._names, leaves)]
        tree: Tree = jax.tree_util.tree_unflatten(self._tree, made)
        return tree

    def exchange(self, params: Tree, steps: int = 1) -> Tree:
        """Exchanges now and returns the values after it. steps: number of
        steps since the last call, without those that ``step`` has counted."""
        self._flat.gather(self._leaves(params))
        made, self._since = steps + self._since, 0
        self._exchange.call(lambda: self._exchange.exchange(made))
        return self.values(params)

    def step(self, params: Tree) -> Tree:
        """Counts one step, and exchanges at the end of a period."""
        self._exchange.check_open()
        self._since += 1
        return params if self._since < self.period else self.exchange(params, 0)


def _as(leaf: Any, value: "np.ndarray[Any, Any]") -> Any:
    """A copy of the value where the leaf is. Never a view: the vector is
    written again, and JAX takes arrays for constant."""
    made = np.array(value, dtype=np.asarray(leaf).dtype)
    if isinstance(leaf, jax.Array):
        return jax.device_put(made, leaf.sharding)
    return made


def join(params: Tree, center: Optional[Addresses] = None,
         key: Optional[KeyLike] = None, *, period: Optional[int] = None,
         workers: Optional[int] = None, worker: Optional[int] = None,
         method: Optional[str] = None, moving_rate: Optional[float] = None,
         compression: str = "none", insecure: bool = False,
         wait_seconds: float = 60.0, connect_seconds: float = 60.0,
         verbose: bool = True) -> tuple[Tree, JaxWorker]:
    """Joins a center with a tree of arrays; returns the center's values as
    such a tree, and the worker. The options are those of ``hooke.torch.join``.
    """
    options = Options(center=center, key=key, period=period, workers=workers,
                      worker=worker, method=method, moving_rate=moving_rate,
                      compression=compression, insecure=insecure,
                      wait_seconds=wait_seconds,
                      connect_seconds=connect_seconds)
    made = JaxWorker(params, options, verbose)
    return made.values(params), made


def center_params(like: Tree, center: Optional[Addresses] = None,
                  key: Optional[KeyLike] = None, *, insecure: bool = False,
                  seconds: float = 60.0) -> Tree:
    """The center's values as a tree of the same structure."""
    names, leaves, shape = _names(like)
    found = center_arrays(center, key, insecure=insecure, seconds=seconds)
    missing = [n for n in names if n not in found]
    if missing:
        raise HookeError(f"the center has no values for {', '.join(missing)}")
    tree: Tree = jax.tree_util.tree_unflatten(
        shape, [_as(leaf, found[n]) for n, leaf in zip(names, leaves)])
    return tree


__all__ = ["Center", "HookeError", "JaxWorker", "Stats", "center_params", "join",
           "spawn", "start_center"]
