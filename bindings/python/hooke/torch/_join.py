"""A PyTorch worker: hooks on the user's own optimizer."""
from __future__ import annotations

import logging
import os
import time
import warnings
import weakref
from typing import Any, Callable, Optional, Sequence, Sized, Union

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from .._errors import HookeError
from .._exchange import Exchange, Layout, Stats
from .._options import Addresses, KeyLike, Options
from .._ranges import Ranges, give_back_all
from .._thread import Call
from .._worker import Worker
from ._group import Mesh, check_ranks, group_of, mesh_of
from ._items import Joined, ShareFn, collect, other_names, unwrapped
from ._moments import moments
from ._sampler import LeasedSampler, ShareSampler
from ._values import Values

log = logging.getLogger("hooke")

Sampler = Union[LeasedSampler, ShareSampler]

_BEGIN_SECONDS = 0.1  # of waiting for the exchange before this one

GRADIENTS = ("agn", "drop_stale")  # methods that send them
ROUNDS = ("elastic_sync", "model_average", "local_sgd", "slowmo", "bmuf",
          "diloco")  # methods where everybody waits for everybody
# Failures before an exchange begins: the vector still holds values.
_NOT_BEGUN = ("HK_E_INVALID_ARG", "HK_E_STATE", "HK_E_UNSUPPORTED",
              "HK_E_NO_MEMORY")


def _innermost(optimizer: Any) -> torch.optim.Optimizer:
    """What Accelerate and Lightning have put a wrapper around."""
    while True:
        inner = getattr(optimizer, "optimizer", None)
        if not isinstance(inner, torch.optim.Optimizer):
            break
        optimizer = inner
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise HookeError(f"optimizer is a {type(optimizer).__name__}, not an "
                         "optimizer of PyTorch; to join without one, give "
                         "optimizer=None and call w.step() after every step")
    return optimizer


class _Follower(Exchange):
    """A rank that is told what rank 0 exchanged."""

    def __init__(self, leader: dict[str, Any], layout: Layout,
                 options: Options) -> None:
        self._pid = os.getpid()
        self.layout, self.options = layout, options
        self.worker, self.incarnation = leader["worker"], leader["incarnation"]
        self.method, self.period = leader["method"], leader["period"]
        self.moving_rate = leader["moving_rate"]
        self.exposed = 0.0
        self._closed = False
        self.steps = 0

    def start(self, function: Callable[[], Any]) -> Call:
        self.check_process()
        call = Call(function)
        call.run()
        return call

    def stats(self) -> Stats:
        """Rank 0 has the rest."""
        return Stats(self.worker, self.incarnation, self.method, self.period,
                     self.moving_rate, self.steps, 0, 0, 0, 0.0, 0.0, 0.0, 0.0,
                     0.0, self.exposed, 0, 0, 0, 0, 0.0, True, False)

    def finished(self) -> bool:
        return False

    def finish(self, reason: str) -> None:
        """Rank 0 says it."""

    def leave(self) -> None:
        self._closed = True


class TorchWorker(Worker):
    """A worker of a PyTorch model; made by ``join``."""

    def __init__(self, model: nn.Module, optimizer: Any, options: Options, *,
                 share: Optional[ShareFn], overlap_steps: Optional[int],
                 overlap_waits: bool, hook: bool, share_moments: bool,
                 ranks: Optional[str], verbose: bool) -> None:
        if not isinstance(model, nn.Module):
            raise HookeError("model has to be a torch.nn.Module, not "
                             f"{type(model).__name__}")
        self._group = group_of(model)
        self._mesh = mesh = mesh_of(model)
        check_ranks(self._group, mesh, ranks)
        self._optimizer = (_innermost(optimizer) if optimizer is not None
                           else None)
        self._steps = 0  # all of this worker
        self._skipped: Optional[Tensor] = None  # counted on a device
        self._pending: Optional[Call] = None
        self._pending_step = -1
        self._wait_seconds = _BEGIN_SECONDS
        self._handles: list[Any] = []
        self._sampler: Optional[Sampler] = None  # the last that was asked for
        self._samplers: dict[str, Sampler] = {}
        self._places: dict[str, Any] = {}  # of samplers to come, as loaded
        self._exchanges_before = 0
        if mesh is not None:
            self._pick_center(options, mesh)
        rename: Any = mesh.name if mesh is not None else lambda n, _: n
        model, _ = unwrapped(model)
        items = collect(model, share, rename)
        tied = other_names(model, items, rename)
        self._check_optimizer([i.find() for i in items])
        self._joined = Joined(model, items, share, self._optimizer)
        self._others = 0  # steps that another optimizer made since the last
        self._other = ""
        if share_moments:
            if self._optimizer is None:
                raise HookeError("share_moments needs the optimizer; give it "
                                 "to join")
            items += moments(items, self._optimizer)
        layout = Layout([i.entry() for i in items] + tied)
        self._values = Values(items, layout)
        made = self._enter(layout, options)
        try:
            super().__init__(made, verbose and self._group.leads)
            self._overlap = self._choose_overlap(overlap_steps)
            # Ranks of one worker have to agree on the step.
            self._waits = (overlap_waits or mesh is not None
                           or not self._group.alone)
            self._check_method()
            if hook and self._optimizer is not None:
                self._hook(self._optimizer)
        except BaseException:
            made.leave()
            raise

    # ---- joining

    @staticmethod
    def _pick_center(options: Options, mesh: Mesh) -> None:
        if len(options.addresses) != mesh.size:
            raise HookeError(
                f"a model in {mesh.size} shards (FSDP2) needs {mesh.size} "
                f"centers, but center= has {len(options.addresses)} addresses")
        options.addresses = [options.addresses[mesh.rank]]

    def _check_optimizer(self, parameters: Sequence[Tensor]) -> None:
        if self._optimizer is None:
            return
        own = {id(p) for p in parameters}
        moved = [p for g in self._optimizer.param_groups for p in g["params"]]
        if not any(id(p) in own for p in moved):
            raise HookeError("the optimizer has none of the model's "
                             "parameters; create it from model.parameters(), "
                             "after all changes of the model")

    def _enter(self, layout: Layout, options: Options) -> Exchange:
        v = self._values
        v.gather()
        v.arrived()
        made: Optional[Exchange] = self._group.together(
            lambda: Exchange(layout, options, v.host.data_ptr(),
                             v.host_side.data_ptr()))
        told = self._group.tell(None if made is None else {
            "worker": made.worker, "incarnation": made.incarnation,
            "method": made.method, "period": made.period,
            "moving_rate": made.moving_rate})
        if made is None:
            made = _Follower(told, layout, options)
        else:
            v.send_back(side=True)
        v.ready()
        self._group.give(v.work)
        self._group.give(v.side)
        v.scatter(copied=True)
        return made

    def _choose_overlap(self, wanted: Optional[int]) -> int:
        """Steps between an exchange and its effect; 0: in place."""
        can = self.method == "elastic" and self._exchange.options.rho == 0
        if wanted is not None and wanted < 0:
            raise HookeError(f"overlap_steps is {wanted}; it has to be at "
                             "least 0")
        if wanted and not can:
            raise HookeError(
                "overlap_steps is only for method elastic with rho 0, not "
                f"for {self.method} with rho {self._exchange.options.rho}")
        if wanted is not None and wanted > self.period:
            raise HookeError(f"overlap_steps is {wanted}; it can be at most "
                             f"the period, {self.period}")
        if not can and self._values.staged:
            log.warning("worker %d: method %s cannot overlap exchanges with "
                        "steps, so the device waits during an exchange",
                        self.id, self.method)
        if wanted is None:
            return 1 if can else 0
        return wanted

    def _check_method(self) -> None:
        if self.method == "drop_stale" and self.period != 1:
            raise HookeError("method drop_stale sends every gradient; period "
                             f"is {self.period}, but has to be 1")
        if self._exchange.options.rho != 0 and not self._group.alone:
            raise HookeError("rho is not supported for a worker of several "
                             "ranks (DDP, FSDP2); use rho=0")
        if self.method == "slowmo" and self._optimizer is None:
            raise HookeError("method slowmo needs the learning rate; give "
                             "the optimizer to join")

    def _hook(self, optimizer: torch.optim.Optimizer) -> None:
        # torch.compile would otherwise trace into the exchange.
        outside: Any = torch.compiler.disable
        if self.method in GRADIENTS or self._exchange.options.rho != 0:
            self._on_gradients = outside(self._use_gradients)
            self._handles.append(optimizer.register_step_pre_hook(
                outside(self._before_step)))
        self._handles.append(optimizer.register_step_post_hook(
            outside(self._after_step)))
        me = weakref.ref(self)  # a hook of all optimizers keeps no worker

        def after_any_step(stepped: torch.optim.Optimizer, *_: Any) -> None:
            worker = me()
            if worker is not None:
                worker._after_any_step(stepped)

        self._handles.append(register_optimizer_step_post_hook(
            outside(after_any_step)))

    # ---- steps

    def _was_skipped(self, optimizer: torch.optim.Optimizer) -> bool:
        """A fused optimizer is called, and does nothing, when a GradScaler has
        found an infinite gradient. On a device the answer is asked for at the
        end of a period only."""
        found = getattr(optimizer, "found_inf", None)
        if not isinstance(found, Tensor):
            return False
        if found.device.type == "cpu":
            return bool(found.item())
        if self._skipped is None:
            self._skipped = torch.zeros_like(found)
        self._skipped.add_(found)
        return False

    def _before_step(self, optimizer: torch.optim.Optimizer,
                     args: tuple[Any, ...], kwargs: dict[str, Any]
                     ) -> Optional[tuple[tuple[Any, ...], dict[str, Any]]]:
        """The gradients of a step are there now, or, where the step gets a
        closure, each time that the closure has run. args[0] is the optimizer."""
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._on_gradients(optimizer, send=True)
            return None
        first = True

        def then_use_gradients() -> Any:
            nonlocal first
            loss = closure()
            self._on_gradients(optimizer, send=first)
            first = False
            return loss

        return args[:1] + args[2:], {**kwargs, "closure": then_use_gradients}

    def _use_gradients(self, optimizer: torch.optim.Optimizer,
                       send: bool) -> None:
        """Adds the pull of rho to the gradients, and sends them for methods
        that do. An optimizer that runs its closure several times in a step
        (LBFGS) has the pull in every gradient and sends the first."""
        rho = self._exchange.options.rho
        if rho != 0:
            view = torch.from_numpy(self._exchange.view())
            self._values.add_pull(view, rho)
        if (send and self.method in GRADIENTS
                and not self._was_skipped(optimizer)):
            self._send_gradients(getattr(optimizer, "grad_scale", None))

    def _send_gradients(self, scale: Optional[Tensor] = None) -> None:
        flat = self._values.gradients(scale)
        self._group.together(lambda: self._exchange.call(
            lambda: self._exchange.gradients(flat.data_ptr())))

    def _after_any_step(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer that has taken the place of the one that join hooked
        makes steps that nobody counts: an error where the next exchange would
        have been. One step is none of these: an optimizer that wraps another
        (SAM) lets it make a step inside of its own."""
        if optimizer is not self._optimizer and self._joined.moves(optimizer):
            self._other = type(optimizer).__name__
            self._others += 1
            if self._others == max(self.period, 2):
                self._check_changes()

    def _check_changes(self) -> None:
        """Once per change, before anything is sent."""
        mine = type(self._optimizer).__name__
        other = ([f"the steps are made by an optimizer ({self._other}) other "
                  f"than the one ({mine}) that was given to join"]
                 if self._others > self._since else [])
        changes = self._joined.new_changes(other)
        if changes:
            raise HookeError(
                "model or optimizer were changed after join, and the changes "
                "are not exchanged: " + "; ".join(changes)
                + ". Leave, and join again with the model and the optimizer "
                  "as they are now", "HK_E_STATE")

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._others = 0
        if not self._was_skipped(optimizer):
            self._count(1)

    def step(self, steps: int = 1) -> None:
        """``steps`` steps have been made. For loops without hooks (``join(...,
        hook=False)``): CUDA graphs, steps of your own."""
        self._exchange.check_open()
        if self.method in GRADIENTS:
            self._send_gradients()
        self._count(steps)

    def _count(self, steps: int) -> None:
        for sampler in self._samplers.values():
            sampler.stepped()
        self._since += steps
        self._steps += steps
        if self._pending is not None:
            self._settle_if_due()
        if self._since < self.period:
            return
        if self._skipped is not None:
            none = int(self._skipped.item())
            self._since -= none
            self._steps -= none
            self._skipped.zero_()
            if self._since < self.period:
                return
        if self._overlap > 0:
            self._begin()
        else:
            self._in_place()

    def _take_since(self) -> int:
        made, self._since = self._since, 0
        if isinstance(self._exchange, _Follower):
            self._exchange.steps += made
        return made

    # ---- exchanges

    def _rate(self) -> float:
        assert self._optimizer is not None
        rates = {float(g["lr"]) for g in self._optimizer.param_groups}
        if len(rates) > 1:
            warnings.warn("method slowmo uses one learning rate; of "
                          f"{sorted(rates)} the largest is used", stacklevel=2)
        return max(rates)

    def _in_place(self) -> None:
        self._settle()
        self._check_changes()
        v, e, made = self._values, self._exchange, self._take_since()
        v.gather(self._group.leads)

        def work() -> None:
            v.arrived()
            if self.method == "slowmo":
                e.set("learning_rate", self._rate())
            e.exchange(made)
            v.send_back()

        self._group.together(lambda: e.call(work))
        v.ready()
        self._group.give(v.work)
        v.scatter()

    def _begin(self) -> None:
        if self._pending is not None and not self._waits:
            # A center that is away stalls no step: the exchange comes later.
            seconds, self._wait_seconds = self._wait_seconds, 0.0
            if not self._pending.wait(seconds):
                return
        self._wait_seconds = _BEGIN_SECONDS
        self._settle()
        self._check_changes()
        v, e, made = self._values, self._exchange, self._take_since()
        v.gather(self._group.leads)

        def work() -> None:
            v.arrived()
            try:
                e.difference(made)
            finally:
                v.send_back()

        self._pending = e.start(work if self._group.leads else lambda: None)
        self._pending_step = self._steps

    def _settle_if_due(self) -> None:
        assert self._pending is not None
        if self._steps - self._pending_step < self._overlap:
            return
        if self._waits or self._pending.done():
            self._settle()

    def _settle(self) -> None:
        """Waits for an exchange under way and applies it."""
        if self._mesh is not None:
            self._mesh.reshard()
        call, self._pending = self._pending, None
        if call is None:
            return
        begin = time.monotonic()
        failed: Optional[HookeError] = None
        try:
            self._group.together(call.result)
        except HookeError as error:
            if error.status in _NOT_BEGUN or not self._group.alone:
                raise
            failed = error
        finally:
            self._exchange.exposed += time.monotonic() - begin
        self._values.ready()
        self._group.give(self._values.work)
        self._values.subtract()
        if failed is not None:
            raise failed

    def exchange_now(self) -> None:
        """An exchange now, whatever the period says; its effect is there when
        this returns."""
        self._in_place()

    def flush(self) -> None:
        """Applies an exchange that is still under way."""
        self._settle()

    def _last_exchange(self) -> None:
        """Steps since the last exchange are the center's, too, where nobody
        has to wait for it."""
        self._settle()
        if self._since > 0 and self.method not in ROUNDS:
            self._in_place()
        self._check_changes()
        leased = [s for s in self._samplers.values()
                  if isinstance(s, LeasedSampler)]
        if leased and not self.finished:
            for sampler in leased:
                sampler.give_back()
            give_back_all(self._exchange)

    def _leave(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        call = self._pending
        if call is not None and call.wait(5):
            try:
                self._settle()
            except HookeError as error:
                log.warning("worker %d: the last exchange failed: %s",
                            self.id, error)
        self._pending = None
        super()._leave()

    # ---- data

    def sampler(self, dataset: Sized, *, shuffle: bool = True, seed: int = 0,
                share: Optional[str] = None, name: str = "data") -> Sampler:
        """This worker's share of a data set, for a DataLoader. share:

        ``"leased"``   the center leases ranges to the workers: every example
                       is used once per epoch, even if workers join, leave or
                       die. The default, except with several ranks and for
                       methods with rounds
        ``"sharded"``  divides by the number of workers (``workers=`` of join);
                       without that number every worker uses all examples, in
                       an order of its own

        Epoch and seed determine the order; with "leased" the seed is that of
        the first worker. name: of the data set, if a run has several; the same
        name returns the same sampler."""
        if not hasattr(dataset, "__len__"):
            raise HookeError(
                f"{type(dataset).__name__} has no length, but w.sampler "
                "divides a data set by the indices of its examples; in an "
                "iterable data set, select the examples of each worker by "
                "w.id")
        usual = self._group.alone and self.method not in ROUNDS
        if share not in (None, "leased", "sharded"):
            raise HookeError(f"share is {share!r}; it has to be 'leased' or "
                             "'sharded'")
        if share == "leased" and not self._group.alone:
            raise HookeError("share='leased' is not supported for a worker "
                             "of several ranks; use share='sharded'")
        old = self._samplers.get(name)
        if share == "leased" or (share is None and usual):
            made: Sampler = self._lease(dataset, shuffle, seed, name, old)
        else:
            made = self._share(dataset, shuffle, seed)
            if isinstance(old, LeasedSampler):
                raise HookeError(f"the sampler {name!r} already leases its "
                                 "data; give a sampler with another share= "
                                 "another name=")
            if old is not None and old.made_of == made.made_of:
                made = old
        if made is not old:
            place = self._places.pop(name, None)
            if place is not None:
                made.load_state_dict(place)
        self._samplers[name] = self._sampler = made
        return made

    def _lease(self, dataset: Sized, shuffle: bool, seed: int, name: str,
               old: Optional[Sampler]) -> LeasedSampler:
        if isinstance(old, LeasedSampler) and old.made_of[0] == len(dataset):
            if old.made_of != (len(dataset), shuffle, seed):
                raise HookeError(f"the sampler {name!r} exists with another "
                                 "shuffle= or seed=; give this one another "
                                 "name=")
            return old
        return LeasedSampler(
            Ranges(self._exchange, name, len(dataset), seed), dataset,
            shuffle=shuffle, seed=seed,
            workers=self._exchange.options.workers or 1)

    def _share(self, dataset: Sized, shuffle: bool, seed: int) -> ShareSampler:
        workers = self._exchange.options.workers
        part = self.id if workers is not None else 0
        if workers is None:
            seed += self.id
        elif self.id >= workers:
            warnings.warn(f"workers={workers}, but this is worker {self.id}: "
                          "it trains on the same examples as worker "
                          f"{self.id % workers}; set workers= to the number "
                          "of workers", stacklevel=3)
            part = self.id % workers
        ranks = self._group.size
        return ShareSampler(
            dataset, part * ranks + self._group.rank, (workers or 1) * ranks,
            shuffle=shuffle, seed=seed)

    # ---- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """What this worker needs to go on beside the model's and the
        optimizer's own state. Applies an exchange under way first. Fits
        ``torch.distributed.checkpoint`` (Stateful)."""
        self._settle()
        e = self._exchange
        state: dict[str, Any] = {
            "worker": e.worker, "incarnation": e.incarnation,
            "method": e.method, "period": e.period,
            "steps": self._steps, "steps_since_exchange": self._since,
            "learning_rates": self._rates(),
            "sampler": (self._sampler.state_dict() if self._sampler is not None
                        else {}),
            "samplers": {n: s.state_dict() for n, s in self._samplers.items()},
            "masters": self._values.masters()}
        if self._group.leads:
            state["exchanges"] = self._exchanges_before + self.stats().exchanges
            state["variables"] = {
                n: torch.from_numpy(a.copy()) for n, a in
                e.call(e.variables).items()}
        return state

    def _rates(self) -> list[float]:
        if self._optimizer is None:
            return []
        return [float(g["lr"]) for g in self._optimizer.param_groups]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a ``state_dict``; the model and the optimizer have been
        loaded before. The learning rates in force then are in force again."""
        self._settle()
        if state["method"] != self.method:
            raise HookeError(f"the state is of method {state['method']}, but "
                             f"the center has {self.method}")
        self._steps = state["steps"]
        self._since = state["steps_since_exchange"]
        self._values.load_masters(state["masters"])
        if self._group.leads and "variables" in state:
            self._exchanges_before = state["exchanges"]
            self._exchange.call(lambda: self._load(state["variables"]))
        self._load_rates(state["learning_rates"])
        self._places = {} if "samplers" in state or not state["sampler"] else {
            "data": state["sampler"]}  # as version 0.2 has it
        self._places.update(state.get("samplers", {}))
        for name, sampler in self._samplers.items():
            if name in self._places:
                sampler.load_state_dict(self._places.pop(name))

    def _load(self, saved: dict[str, Tensor]) -> None:
        own = self._exchange.variables()
        for name, value in saved.items():
            if name in own and own[name].shape == tuple(value.shape):
                own[name][...] = value.cpu().numpy()
            else:
                log.warning("worker %d: %s of the loaded state is not used",
                            self.id, name)

    def _load_rates(self, rates: list[float]) -> None:
        groups = self._optimizer.param_groups if self._optimizer else []
        if len(rates) != len(groups):
            log.warning("worker %d: the loaded state has %d learning rates "
                        "for %d groups of parameters; only those of the "
                        "first groups are set",
                        self.id, len(rates), len(groups))
        for g, rate in zip(groups, rates):
            if isinstance(g["lr"], Tensor):
                g["lr"].fill_(rate)
            else:
                g["lr"] = rate


def join(model: nn.Module, optimizer: Any = None,
         center: Optional[Addresses] = None, key: Optional[KeyLike] = None, *,
         period: Optional[int] = None, workers: Optional[int] = None,
         worker: Optional[int] = None, method: Optional[str] = None,
         moving_rate: Optional[float] = None, rho: float = 0.0,
         share: Optional[ShareFn] = None, overlap_steps: Optional[int] = None,
         overlap_waits: bool = False, compression: str = "none",
         hook: bool = True, share_moments: bool = False,
         ranks: Optional[str] = None,
         telemetry: bool = True, insecure: bool = False,
         wait_seconds: float = 60.0, connect_seconds: float = 60.0,
         lost_seconds: float = 600.0, verbose: bool = True) -> TorchWorker:
    """Joins a center: the model gets the center's values, or the center gets
    the model's values if it has none yet. From then on the optimizer's steps
    are counted, and the values are exchanged every ``period`` steps.

    model          the model on its device; it may be compiled, wrapped in
                   DistributedDataParallel, or sharded by fully_shard
    optimizer      an optimizer of PyTorch, which gets a hook; None: call
                   ``w.step()`` after every step
    center         address of the center, or of all shards; default:
                   HOOKE_CENTER
    key            file of the cluster key; default: HOOKE_KEY
    period         steps between exchanges; default: the method's (10)
    workers        number of workers; default: HOOKE_WORKERS
    worker         index of this worker; default: HOOKE_INDEX, or the lowest
                   free index
    method         required method of the center; default: any
    moving_rate    share of the difference that an exchange moves; default: 0.5
    rho            strength of the elastic term in every gradient; default: 0
    share          function of name and tensor that returns "average", "copy"
                   (the value of the last worker; workers that join get it),
                   "local" or None. Default: floats are averaged, integers
                   copied
    overlap_steps  minimum number of steps that run during an exchange; 0: the
                   exchange runs between two steps. Default: 1 with method
                   elastic and rho 0; other cases have to be 0
    overlap_waits  an exchange takes effect after exactly overlap_steps steps,
                   even if the worker has to wait for it
    compression    of the differences on the network: "none", "bf16", "int8"
    hook           False: report every step with ``w.step()``
    share_moments  copies the optimizer's moments to the center at every
                   exchange; workers that join get them
    ranks          "independent": every rank of torch.distributed is a worker of
                   its own. Default: the ranks of a DDP model are one worker;
                   other modules are refused if there are several ranks
    telemetry      measures the distance to the center at every exchange
    insecure       allows a center of another user on this host
    wait_seconds, connect_seconds, lost_seconds
                   deadlines: of a round or answer, of the first connection, of
                   a center that does not come back
    """
    options = Options(
        center=center, key=key, period=period, workers=workers, worker=worker,
        method=method, moving_rate=moving_rate, rho=rho,
        compression=compression, telemetry=telemetry, insecure=insecure,
        wait_seconds=wait_seconds, connect_seconds=connect_seconds,
        lost_seconds=lost_seconds)
    return TorchWorker(
        model, optimizer, options, share=share, overlap_steps=overlap_steps,
        overlap_waits=overlap_waits, hook=hook, share_moments=share_moments,
        ranks=ranks, verbose=verbose)
