"""The hooks, and everything that people do with optimizers."""
import contextlib
import copy
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hooke.torch as hooke


def net():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def train(model, optimizer, steps, **kwargs):
    for i in range(steps):
        g = torch.Generator().manual_seed(i)
        x = torch.randn(16, 4, generator=g)
        model(x).square().mean().backward()
        optimizer.step(**kwargs)
        optimizer.zero_grad()


def joined(center, model, optimizer, **options):
    return hooke.join(model, optimizer, center=center.address, verbose=False,
                      **options)


OPTIMIZERS = [
    lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    lambda p: torch.optim.AdamW(p, 1e-2),
    lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
    lambda p: torch.optim.AdamW(p, torch.tensor(1e-2), foreach=False),
    lambda p: torch.optim.Adafactor(p, 1e-2),
    lambda p: torch.optim.RMSprop([{"params": list(p), "lr": 1e-3}]),
]


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_any_optimizer(center, make):
    model = net()
    optimizer = make(model.parameters())
    kind, groups = type(optimizer), len(optimizer.param_groups)
    with joined(center, model, optimizer, period=3) as w:
        train(model, optimizer, 7)
        assert w.stats().exchanges == 2
    assert type(optimizer) is kind and len(optimizer.param_groups) == groups
    s = center.stats()
    assert s["exchanges"] == 3 and s["global_step"] == 7  # and a last one
    train(model, optimizer, 6)
    assert center.stats()["exchanges"] == 3  # the hooks are gone


def test_training_is_what_it_was(center):
    """Without others, and with nothing to be pulled to, a step is a step."""
    models = net(), net()
    optimizers = [torch.optim.AdamW(m.parameters(), 1e-2) for m in models]
    with joined(center, models[0], optimizers[0], moving_rate=0.0, period=2):
        train(models[0], optimizers[0], 10)
    train(models[1], optimizers[1], 10)
    for a, b in zip(models[0].parameters(), models[1].parameters()):
        assert torch.equal(a, b)


def test_closures(center):
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x = torch.randn(16, 4)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    with joined(center, model, optimizer, period=2) as w:
        for _ in range(4):
            optimizer.step(closure)
        assert w.stats().exchanges == 2


def step_with(optimizer, gradient, how):
    """A step on a gradient that is there before it, or that its closure makes."""
    def closure():
        for g in optimizer.param_groups:
            for p in g["params"]:
                p.grad = torch.full_like(p, gradient)
        return torch.tensor(gradient)

    if how == "before":
        closure()
        optimizer.step()
    elif how == "closure":
        assert float(optimizer.step(closure)) == gradient
    else:
        assert float(optimizer.step(closure=closure)) == gradient


HOW = ["before", "closure", "closure="]


@pytest.mark.parametrize("how", HOW)
def test_rho_pulls_the_gradient_of_a_closure(center, how):
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with joined(center, model, optimizer, period=100, rho=0.5, moving_rate=0.3):
        c, x = model.weight.detach().clone(), model.weight.detach().clone()
        for gradient in (1.0, 3.0):
            step_with(optimizer, gradient, how)
            x = x - 0.1 * (gradient + 0.5 * (x - c))
            torch.testing.assert_close(model.weight.detach(), x)


@pytest.mark.parametrize("method", ["agn", "drop_stale"])
@pytest.mark.parametrize("how", HOW)
def test_the_gradient_of_a_closure_is_sent(method, how):
    """The center makes the step of this batch, not of the one before."""
    with hooke.start_center(method=method, workers=1, outer={
            "type": "sgd", "learning_rate": 1.0}) as c:
        model = nn.Linear(2, 1, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), 0.0)
        with joined(c, model, optimizer, period=1):
            want = model.weight.detach().clone()
            for gradient in (1.0, 10.0, 100.0):
                step_with(optimizer, gradient, how)
                want -= gradient
                torch.testing.assert_close(
                    hooke.center_state_dict(c.address)["weight"], want)


def test_a_closure_that_runs_twice_sends_once():
    with hooke.start_center(method="agn", workers=1, outer={
            "type": "sgd", "learning_rate": 1.0}) as c:
        model = nn.Linear(1, 1, bias=False)
        start = model.weight.detach().clone()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
        gradients = []

        def closure():
            optimizer.zero_grad()
            loss = model.weight.square().sum()
            loss.backward()
            gradients.append(model.weight.grad.clone())
            return loss

        with joined(c, model, optimizer, period=1):
            optimizer.step(closure)
            assert len(gradients) > 1
            torch.testing.assert_close(
                hooke.center_state_dict(c.address)["weight"],
                start - gradients[0])


def test_schedulers(center):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=9)
    with warnings.catch_warnings(), \
            joined(center, model, optimizer, period=2) as w:
        warnings.simplefilter("error")
        for _ in range(8):
            train(model, optimizer, 1)
            schedule.step()
        assert w.state_dict()["learning_rates"] == schedule.get_last_lr()


@pytest.mark.parametrize("fused", [False, True])
def test_a_skipped_step_is_none(center, fused):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with joined(center, model, optimizer, period=2) as w:
        for i in range(6):
            loss = model(torch.randn(16, 4)).square().mean()
            if i % 3 == 0:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        assert w.stats().exchanges == 2 and w.stats().local_step == 4


def test_compiled(center):
    model = torch.compile(net(), backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with joined(center, model, optimizer, period=2) as w:
        train(model, optimizer, 4)
        assert w.stats().exchanges == 2
    assert "0.weight" in hooke.center_state_dict(center.address)


def test_compiled_step(center):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @torch.compile(backend="eager")
    def step():
        optimizer.step()

    with joined(center, model, optimizer, period=2) as w:
        for _ in range(4):
            model(torch.randn(16, 4)).square().mean().backward()
            step()
            optimizer.zero_grad()
        assert w.stats().exchanges == 2


def test_steps_without_hooks(center):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with joined(center, model, optimizer, period=4, hook=False) as w:
        train(model, optimizer, 8)
        assert w.stats().exchanges == 0
        w.step()
        w.step(3)
        assert w.stats().exchanges == 1 and w.stats().local_step == 4
        w.exchange_now()
        assert w.stats().exchanges == 2


def test_wrapped_optimizers(center):
    class Wrapper:  # as Accelerate's and Lightning's are
        def __init__(self, optimizer):
            self.optimizer = optimizer

    model = net()
    inner = torch.optim.SGD(model.parameters(), 0.1)
    with joined(center, model, Wrapper(inner), period=1) as w:
        train(model, inner, 2)
        assert w.stats().exchanges == 2
    with pytest.raises(hooke.HookeError, match="not an optimizer"):
        joined(center, model, Wrapper(None))
    other = torch.optim.SGD(net().parameters(), 0.1)
    with pytest.raises(hooke.HookeError, match="none of the model"):
        joined(center, model, other)


# ---- methods -----------------------------------------------------------------

METHODS = ["elastic", "elastic_sync", "downpour", "downpour_averaged",
           "downpour_moving", "model_average", "local_sgd", "agn", "drop_stale",
           "slowmo", "bmuf", "diloco", "diloco_async", "diloco_delayed"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method):
    outer = ({"type": "sgd", "learning_rate": 0.1}
             if method in ("agn", "drop_stale") else None)
    with hooke.start_center(method=method, workers=1, outer=outer) as c:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        period = 1 if method == "drop_stale" else 2
        before = copy.deepcopy(model.state_dict())
        with joined(c, model, optimizer, period=period) as w:
            train(model, optimizer, 4)
            assert w.method == method and w.stats().exchanges == 4 // period
        state = hooke.center_state_dict(c.address)
        assert not torch.equal(state["0.weight"], before["0.weight"])
        if "downpour_" in method:
            hooke.center_state_dict(c.address, average=True)


def test_gradients_go_to_the_center():
    """agn with an outer SGD: the center makes the step of the mean gradient."""
    with hooke.start_center(method="agn", outer={
            "type": "sgd", "learning_rate": 0.5}) as c:
        model = nn.Linear(3, 1, bias=False)
        start = model.weight.detach().clone()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with joined(c, model, optimizer, period=2):
            for k in (1.0, 3.0):
                model.weight.grad = torch.full((1, 3), k)
                optimizer.step()
            torch.testing.assert_close(model.weight, start - 0.5 * 2.0)


def test_a_stale_gradient_makes_no_step():
    with hooke.start_center(method="drop_stale", staleness=0, outer={
            "type": "sgd", "learning_rate": 0.5}) as c:
        models = [nn.Linear(2, 1, bias=False) for _ in range(2)]
        opts = [torch.optim.SGD(m.parameters(), 0.1) for m in models]
        with joined(c, models[0], opts[0]) as a, joined(c, models[1], opts[1]) as b:
            start = models[0].weight.detach().clone()
            for m, o in zip(models, opts):
                m.weight.grad = torch.ones(1, 2)
                o.step()  # the second one is a version late
            assert (a.stats().dropped, b.stats().dropped) == (0, 1)
            for m in models:
                torch.testing.assert_close(m.weight, start - 0.5)
        with pytest.raises(hooke.HookeError, match="has to be 1"):
            joined(c, models[0], opts[0], period=3)


def test_slowmo_counts_in_the_learning_rate():
    """u = beta u + (c - x)/gamma; c -= gamma u, beta 0.7, one worker."""
    with hooke.start_center(method="slowmo", workers=1) as c:
        model = nn.Linear(2, 1, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), 0.25)
        with joined(c, model, optimizer, period=1):
            want, u = model.weight.detach().clone(), torch.zeros(1, 2)
            for rate in (0.25, 0.25, 0.125):
                optimizer.param_groups[0]["lr"] = rate
                model.weight.grad = torch.ones(1, 2)
                optimizer.step()
                u = 0.7 * u + rate * torch.ones(1, 2) / rate
                want = want - rate * u
                torch.testing.assert_close(model.weight.detach(), want)
        with pytest.raises(hooke.HookeError, match="learning rate"):
            joined(c, model, None)


def test_rho_pulls_every_gradient(center):
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with joined(center, model, optimizer, period=100, rho=0.5, moving_rate=0.3):
        c, x = model.weight.detach().clone(), model.weight.detach().clone()
        for _ in range(3):
            model.weight.grad = torch.ones(1, 2)
            optimizer.step()
            x = x - 0.1 * (1 + 0.5 * (x - c))
        torch.testing.assert_close(model.weight.detach(), x)
    with pytest.raises(hooke.HookeError, match="rho 0"):
        joined(center, model, optimizer, rho=0.5, overlap_steps=1)


# ---- overlap -----------------------------------------------------------------

def test_overlap(center):
    """x gets d, of the moment the exchange began, exactly so much later."""
    model = nn.Linear(2, 1, bias=False)
    x = model.weight.detach().clone()
    c = x.clone()
    pending = None
    with joined(center, model, None, period=4, moving_rate=0.25,
                overlap_steps=2, overlap_waits=True) as w:
        for step in range(1, 21):
            with torch.no_grad():
                model.weight.add_(1)
            x = x + 1
            w.step()
            if pending is not None and step == pending[0] + 2:
                x = x - pending[1]
                pending = None
            if step % 4 == 0:
                d = 0.25 * (x - c)
                c = c + d
                pending = (step, d)
            torch.testing.assert_close(model.weight.detach(), x)
    # The last exchange was under way: leaving has waited for it.
    torch.testing.assert_close(model.weight.detach(), x - pending[1])
    torch.testing.assert_close(
        hooke.center_state_dict(center.address)["weight"], c)


def test_overlap_does_not_wait():
    """With a center that takes its time, steps go on."""
    with hooke.start_center() as c:
        model = nn.Linear(2000, 500)
        with joined(c, model, None, period=3, overlap_steps=1) as w:
            for _ in range(9):
                w.step()
            assert w.stats().exchanges == 3
            w.flush()


@pytest.mark.parametrize("options, says", [
    ({"overlap_steps": -1}, "overlap_steps is -1"),
    ({"overlap_steps": 11}, "at most the period, 10"),
])
def test_bad_overlap(center, options, says):
    with pytest.raises(hooke.HookeError, match=says):
        joined(center, net(), None, **options)
    assert center.stats()["live"] == 0


def test_overlap_is_for_elastic():
    with hooke.start_center(method="diloco") as c, \
            pytest.raises(hooke.HookeError, match="not for diloco"):
        joined(c, net(), None, overlap_steps=1)


# ---- changes since join ------------------------------------------------------

def two_layers():
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def add_a_layer(model, optimizer):
    model.append(nn.Linear(2, 2))
    optimizer.add_param_group({"params": model[2].parameters()})


def replace_a_layer(model, optimizer):
    model[1] = nn.Linear(4, 2)
    optimizer.add_param_group({"params": model[1].parameters()})


def replace_a_parameter(model, optimizer):
    model[1].weight = nn.Parameter(torch.zeros(2, 4))


def remove_a_layer(model, optimizer):
    del model[1]


def remove_a_parameter(model, optimizer):
    del model[1].bias


def tie(model, optimizer):
    model[1].bias = None


def add_to_the_optimizer(model, optimizer):
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("change, text", [
    (add_a_layer, r"2.weight \(2, 2\) was added; 2.bias \(2,\) was added"),
    (replace_a_layer,
     r"1.weight \(2, 4\) was replaced; 1.bias \(2,\) was replaced"),
    (replace_a_parameter, r"the changes are not exchanged: 1.weight \(2, 4\) "
     r"was replaced\. Leave"),
    (remove_a_layer, "1.weight was removed"),
    (remove_a_parameter, "1.bias was removed"),
    (tie, "1.bias was removed, or tied"),
    (add_to_the_optimizer, r"parameter 0 of the optimizer's group 1 \(3,\) is "
     "not the model's")])
def test_changes_since_join(center, change, text, overlap):
    """One error at the next exchange, before anything is sent."""
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with joined(center, model, optimizer, period=3, overlap_steps=overlap) as w:
        change(model, optimizer)
        for _ in range(2):
            optimizer.step()
        with pytest.raises(hooke.HookeError, match=text):
            optimizer.step()
        assert center.stats()["exchanges"] == 0
        if change in (tie, remove_a_parameter):
            with pytest.raises(hooke.HookeError, match="bias was removed"):
                w.exchange_now()  # there is no such tensor to go on with
            return w.leave()
        optimizer.step()  # said once
        w.flush()
        assert center.stats()["exchanges"] == 1


def test_an_optimizer_in_place_of_the_joined_one(center):
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with joined(center, model, optimizer, period=3):
        head = torch.optim.Adam(two_layers().parameters())
        other = torch.optim.AdamW(model.parameters(), 0.1)
        for o in (optimizer, other, optimizer, other, other, head, head, head):
            o.step()
        with pytest.raises(hooke.HookeError, match=r"optimizer "
                           r"\(AdamW\) other than the one \(SGD\)"):
            other.step()
        other.step()


def test_an_optimizer_inside_of_the_joined_one(center):
    class Twice(torch.optim.Optimizer):  # as SAM is
        def __init__(self, params):
            self.base = torch.optim.SGD(params, 0.1)
            super().__init__(self.base.param_groups, self.base.defaults)

        def step(self, closure=None):
            self.base.step()

    model = two_layers()
    outer = Twice(model.parameters())
    with joined(center, model, outer, period=1) as w:
        for _ in range(3):
            outer.step()
        assert w.stats().local_step == 3
        outer.base.step()
        with pytest.raises(hooke.HookeError, match=r"an optimizer \(SGD\) other "
                           r"than the one \(Twice\) that was given to join"):
            outer.base.step()


def test_an_optimizer_in_place_is_noticed_at_the_end(center):
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(hooke.HookeError, match=r"an optimizer \(SGD\) other "
                       r"than the one \(SGD\) that was given to join"), \
            joined(center, model, optimizer, period=100):
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        optimizer.step()


def test_what_changes_without_harm(center):
    """Two optimizers of one model, unfrozen layers, buffers made in forward,
    parameters that share= leaves out."""
    model = two_layers()
    model.register_parameter("extra", nn.Parameter(torch.zeros(2)))
    first = torch.optim.SGD(model[0].parameters(), 0.1)
    second = torch.optim.SGD(model[1].parameters(), 0.1)
    with joined(center, model, first, period=2, share=lambda n, t: (
            False if "extra" in n else None)) as w:
        first.add_param_group({"params": model[1].weight})
        model[0].register_buffer("cache", torch.zeros(3))
        model.register_parameter("extra", nn.Parameter(torch.zeros(5)))
        model.register_parameter("extra2", nn.Parameter(torch.zeros(5)))
        for _ in range(4):
            second.step()
            first.step()
        w.flush()
        assert w.stats().exchanges == 2


# ---- optimizer state ---------------------------------------------------------

MAKE = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, 0.1, amsgrad=True, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, torch.tensor(0.1)),
    "rprop": lambda p: torch.optim.Rprop(p, 0.1),
    "nadam": lambda p: torch.optim.NAdam(p, 0.1),
    "radam": lambda p: torch.optim.RAdam(p, 0.1),
    "asgd": lambda p: torch.optim.ASGD(p, 0.1, lambd=0.1, t0=1),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1,
                                             initial_accumulator_value=0.5),
    "adadelta": lambda p: torch.optim.Adadelta(p, 0.1),
    "adamax": lambda p: torch.optim.Adamax(p, 0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.9,
                                             centered=True),
    "adafactor": lambda p: torch.optim.Adafactor(p, 0.1),
}


@pytest.mark.parametrize("kind", MAKE)
def test_shared_moments_begin_as_the_optimizers_do(center, kind):
    """Joining with share_moments changes no step of a worker alone."""
    plain, model = two_layers(), two_layers()
    model.load_state_dict(plain.state_dict())
    a, b = MAKE[kind](plain.parameters()), MAKE[kind](model.parameters())
    with joined(center, model, b, period=100, share_moments=True):
        for i in range(3):
            for net_, optimizer in ((plain, a), (model, b)):
                torch.manual_seed(i)
                optimizer.zero_grad()
                net_(torch.randn(5, 4)).square().sum().backward()
                optimizer.step()
            for x, y in zip(plain.parameters(), model.parameters()):
                assert torch.equal(x, y)


def test_moments_that_are_not_shared(center):
    class Odd(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                self.state[p].setdefault("scale", torch.ones(()))

    for make, text in [
            (lambda p: torch.optim.LBFGS(p), "LBFGS is not supported"),
            (lambda p: torch.optim.SparseAdam(p), "SparseAdam is not supported"),
            (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.1),
             "SGD with dampening"),
            (Odd, "scale of Odd does not start with zeros; make a step")]:
        model = net()
        with pytest.raises(hooke.HookeError, match=text):
            joined(center, model, make(model.parameters()), share_moments=True)
    optimizer = Odd(model.parameters())
    optimizer.step()
    joined(center, model, optimizer, share_moments=True).leave()


# ---- errors that say what is wrong -------------------------------------------

def test_what_join_and_sampler_do_not_take(center):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    model = net()
    with pytest.raises(hooke.HookeError, match="torch.nn.Module, not generator"):
        hooke.join(model.parameters(), center=center.address)
    with joined(center, model, None) as w, \
            pytest.raises(hooke.HookeError, match="Stream has no length"):
        w.sampler(Stream())


def test_rho_and_sparse_gradients(center):
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with joined(center, model, optimizer, rho=0.1):
        model(torch.tensor([1])).sum().backward()
        with pytest.raises(hooke.HookeError, match="weight has a sparse"):
            optimizer.step()


def test_a_killed_center_stalls_no_step(tmp_path):
    """Steps go on while exchanges wait for a center that is away."""
    p = subprocess.Popen([sys.executable, "-c", (
        "import sys, hooke\n"
        "with hooke.start_center(sys.argv[1]): print(flush=True); "
        "sys.stdin.read()"), f"unix:{tmp_path}/c"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE)
    p.stdout.readline()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    w = hooke.join(model, optimizer, center=f"unix:{tmp_path}/c", period=2,
                   verbose=False)
    train(model, optimizer, 6)
    w.flush()
    p.kill()
    p.wait()
    longest, begin = 0.0, time.monotonic()
    while w.stats().missed == 0 and time.monotonic() - begin < 30:
        for _ in range(20):
            before = time.monotonic()
            train(model, optimizer, 1)
            longest = max(longest, time.monotonic() - before)
    assert w.stats().missed > 0 and longest < 1.0
    w.leave()


# ---- numbers that are not finite ---------------------------------------------

def test_a_buffer_without_an_average_stays(center, caplog):
    model = net()
    mask = torch.full((3, 3), float("-inf")).triu(1)
    model[0].register_buffer("mask", mask.clone())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with joined(center, model, optimizer, period=1, overlap_steps=0) as w:
        train(model, optimizer, 2)
        assert w.stats().exchanges == 2
    assert "buffer 0.mask has the value -inf and is not exchanged" in caplog.text
    assert torch.equal(model[0].mask, mask)
    assert "0.mask" not in hooke.center_state_dict(center.address)


# ---- data and checkpoints ----------------------------------------------------

def test_sampler(center):
    ds = TensorDataset(torch.arange(103))
    ws = [joined(center, net(), None, workers=3) for _ in range(3)]
    seen = []
    for epoch in range(2):
        orders = []
        for w in ws:
            s = w.sampler(ds, seed=5, share="sharded")
            s.set_epoch(epoch)
            loader = DataLoader(ds, batch_size=10, sampler=s)
            orders.append(torch.cat([b for (b,) in loader]).tolist())
            assert len(s) == len(orders[-1]) and s.epoch == epoch + 1
        assert sorted(sum(orders, [])) == list(range(103))
        seen.append(orders)
    assert seen[0] != seen[1]
    alone = joined(center, net(), None)
    assert sorted(alone.sampler(ds, share="sharded")) == list(range(103))
    with pytest.warns(UserWarning, match="this is worker 3"):
        alone._exchange.options.workers = 3
        alone.sampler(ds, share="sharded")
    for w in [*ws, alone]:
        w.leave()


def test_sampler_goes_on(center):
    ds = list(range(50))
    with joined(center, net(), None) as w:
        s = w.sampler(ds, share="sharded")
        it = iter(s)
        done = [next(it) for _ in range(20)]
        state = w.state_dict()
        rest = list(it)
        other = w.sampler(ds, share="sharded")
        w.load_state_dict(state)
        assert list(other) == rest and sorted(done + rest) == ds


def lease(center, **more):
    """A worker that trains on numbers, one of which is a batch of its own."""
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    w = joined(center, model, optimizer, period=2, **more)

    def train_on(x):
        model(x.float().reshape(-1, 1)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return w, train_on


@pytest.mark.parametrize("ahead", [0, 2])
def test_leased(center, ahead):
    """Every example once an epoch, shared by whoever is there; what a worker
    that leaves has not used is somebody else's."""
    ds = TensorDataset(torch.arange(203))
    seen = [[], []]
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(w) and (w, step)
                for w, step in (lease(center, workers=2) for _ in range(2))]
        loaders = [DataLoader(ds, batch_size=5, num_workers=ahead,
                              sampler=w.sampler(ds, seed=5)) for w, _ in both]
        for _ in range(2):
            its = [iter(ld) for ld in loaders]
            epochs = [w._sampler.epoch for w, _ in both]
            live = [0, 1]
            while live:
                i = live[len(seen[epochs[live[0]]]) % len(live)]
                batch = next(its[i], None)
                if batch is None:
                    live.remove(i)
                    continue
                both[i][1](batch[0])
                seen[epochs[i]] += batch[0].tolist()
    assert sorted(seen[0]) == list(range(203))
    assert sorted(seen[1]) == list(range(203)) and seen[0] != seen[1]


def test_leased_goes_back(center):
    ds = TensorDataset(torch.arange(160))
    seen = []
    w, step = lease(center)
    with w:
        for (x,) in DataLoader(ds, batch_size=4, sampler=w.sampler(ds)):
            step(x)
            seen += x.tolist()
            if len(seen) == 44:
                break
        state = w.state_dict()["sampler"]
        assert state["epoch"] == 0 and state["lease"]
    w, step = lease(center)
    with w:
        for (x,) in DataLoader(ds, batch_size=4, sampler=w.sampler(ds)):
            step(x)
            seen += x.tolist()
    assert sorted(seen) == list(range(160))


def test_leased_refuses(center):
    w, _ = lease(center)
    with w:
        w.sampler(range(10))
        with pytest.raises(hooke.HookeError, match="10 units with 000000000000000a"):
            w.sampler(range(11))
        w.sampler(range(11), name="other")
        with pytest.raises(hooke.HookeError, match="'sharded'"):
            w.sampler(range(10), share="halved")
    with hooke.start_center(method="diloco") as c:
        w = joined(c, net(), None)
        assert isinstance(w.sampler(range(10)), hooke.ShareSampler)
        w.leave()


def run_pass(loader, step, batches=None):
    """The examples of a pass, or of its first batches."""
    seen = []
    for i, (x,) in enumerate(loader):
        step(x)
        seen += x.tolist()
        if i + 1 == batches:
            break
    return seen


def test_a_sampler_made_again_goes_on(center):
    """One name is one sampler: made again for every epoch, it leases on."""
    ds = TensorDataset(torch.arange(64))
    w, step = lease(center)
    with w:
        first = w.sampler(ds)
        for _ in range(4):
            loader = DataLoader(ds, batch_size=8, sampler=w.sampler(ds))
            assert sorted(run_pass(loader, step)) == list(range(64))
        assert w.sampler(ds) is first
        with pytest.raises(hooke.HookeError, match="exists with another shuffle"):
            w.sampler(ds, shuffle=False)
        with pytest.raises(hooke.HookeError, match="already leases its data"):
            w.sampler(ds, share="sharded")
        # Nothing is held back from another worker.
        other, other_step = lease(center)
        with other:
            loader = DataLoader(ds, batch_size=8, sampler=other.sampler(ds))
            for _ in range(2):
                assert sorted(run_pass(loader, other_step)) == list(range(64))


@pytest.mark.parametrize("workers", [None, 2])
def test_a_late_worker_begins_in_the_current_epoch(center, workers):
    ds = TensorDataset(torch.arange(64))
    a, a_step = lease(center, workers=workers)
    loader = DataLoader(ds, batch_size=8, sampler=a.sampler(ds))
    for _ in range(3):
        run_pass(loader, a_step)
    rest = iter(loader)
    a_step(next(rest)[0])
    b, b_step = lease(center, workers=workers)
    loader = DataLoader(ds, batch_size=8, sampler=b.sampler(ds))
    passes = [len(run_pass(loader, b_step)) for _ in range(3)]
    most = 64 // (workers or 1)
    assert 0 < passes[0] <= most and passes[1:] == [most, most]
    for w in (a, b):
        w.leave()
    w, step = lease(center)  # one that comes back has another sampler
    with w:
        loader = DataLoader(ds, batch_size=8, sampler=w.sampler(ds))
        assert len(run_pass(loader, step)) > 0


def test_a_pass_is_no_longer_than_its_length(center):
    """A schedule of len(loader) steps a pass, and the other worker is away."""
    ds = TensorDataset(torch.arange(203))
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    with joined(center, model, optimizer, period=2, workers=2) as w:
        loader = DataLoader(ds, batch_size=10, sampler=w.sampler(ds))
        rates = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 1e-6, epochs=5, steps_per_epoch=len(loader))
        seen = []
        for _ in range(5):
            for (x,) in loader:
                model(x.float()[:, None]).sum().backward()
                optimizer.step()
                rates.step()
                seen += x.tolist()
        assert len(seen) == 5 * 102
    assert [sorted(seen[203 * i:203 * (i + 1)]) for i in range(2)] == (
        2 * [list(range(203))])


@pytest.mark.parametrize("share", ["leased", "sharded"])
def test_examples_fetched_ahead_are_not_used(center, share):
    """A loop leaves a pass after some batches: the next pass, or a process
    that loads its state, gets what the DataLoader had fetched ahead."""
    ds = TensorDataset(torch.arange(120))
    w, step = lease(center)
    with w:
        sampler = w.sampler(ds, share=share)
        loader = DataLoader(ds, batch_size=4, num_workers=2, sampler=sampler)
        seen = run_pass(loader, step, 5)
        assert len(seen) == 20
        if share == "sharded":
            assert sampler.state_dict() == {"epoch": 0, "position": 20}
        seen += run_pass(loader, step)
        assert sorted(seen) == list(range(120))
        if share == "sharded":
            assert sampler.state_dict() == {"epoch": 1, "position": 0}
        assert sorted(run_pass(loader, step)) == list(range(120))


@pytest.mark.parametrize("first", ["sampler", "load"])
def test_places_of_samplers_are_loaded(center, first):
    """In either order: the state first, or the samplers."""
    ds = list(range(60))
    with joined(center, net(), None, workers=2, worker=1) as w:
        it = iter(w.sampler(ds, share="sharded"))
        done = [next(it) for _ in range(5)]
        list(w.sampler(ds[:8], share="sharded", name="validation"))
        state = w.state_dict()
        rest = list(it)
    with joined(center, net(), None, workers=2, worker=1) as w:
        if first == "load":
            w.load_state_dict(state)
        s = w.sampler(ds, share="sharded")
        v = w.sampler(ds[:8], share="sharded", name="validation")
        if first == "sampler":
            w.load_state_dict(state)
        assert s.state_dict() == {"epoch": 0, "position": 5}
        assert v.state_dict() == {"epoch": 1, "position": 0}
        assert list(s) == rest and len(done + rest) == 30
        old = {**state, "sampler": {"epoch": 4, "position": 3}}
        del old["samplers"]
        w.load_state_dict(old)  # of version 0.2
        assert s.state_dict() == old["sampler"]


@pytest.mark.parametrize("compression", ["none", "int8"])
def test_state_goes_on(center, compression, tmp_path):
    """A worker that is loaded goes on as the one that was saved."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    with joined(center, model, optimizer, period=3, worker=0,
                compression=compression) as w:
        train(model, optimizer, 7)
        optimizer.param_groups[0]["lr"] = 0.005
        torch.save({"m": model.state_dict(), "o": optimizer.state_dict(),
                    "w": w.state_dict()}, tmp_path / "c.pt")
        saved = w.state_dict()
    assert saved["steps"] == 7 and saved["steps_since_exchange"] == 1
    assert ("exchange_residual/0.weight" in saved["variables"]) == (
        compression == "int8")
    other = net()
    again = torch.optim.AdamW(other.parameters(), 1e-2)
    state = torch.load(tmp_path / "c.pt")
    with joined(center, other, again, period=3, worker=0,
                compression=compression) as w:
        other.load_state_dict(state["m"])
        again.load_state_dict(state["o"])
        again.param_groups[0]["lr"] = 0.5  # what a scheduler of its own says
        w.load_state_dict(state["w"])
        assert again.param_groups[0]["lr"] == 0.005
        found = w.state_dict()
        assert found["incarnation"] == saved["incarnation"] + 1
        for key in "steps", "steps_since_exchange", "exchanges":
            assert found[key] == saved[key], key
        for name, value in saved["variables"].items():
            assert torch.equal(found["variables"][name], value), name
        train(other, again, 2)
        assert w.stats().exchanges == 1  # the period goes on


def test_distributed_checkpoint_takes_it(center, tmp_path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.stateful import Stateful

    model = nn.Linear(3, 3).bfloat16()
    with joined(center, model, None, period=2) as w:
        assert isinstance(w, Stateful)
        w.step(3)
        master = w.state_dict()["masters"]["weight"].clone()
        dcp.save({"hooke": w}, checkpoint_id=tmp_path / "d", no_dist=True)
        w.step()
        dcp.load({"hooke": w}, checkpoint_id=tmp_path / "d", no_dist=True)
        assert w.state_dict()["steps"] == 3
        assert torch.equal(w.state_dict()["masters"]["weight"], master)


def test_who_joins_gets_the_moments(center):
    model, other = net(), net()
    a = torch.optim.AdamW(model.parameters(), 1e-2)
    b = torch.optim.AdamW(other.parameters(), 1e-2)
    before = copy.deepcopy(model.state_dict())
    with joined(center, model, a, period=2, share_moments=True):
        for name, t in model.state_dict().items():
            assert torch.equal(t, before[name])  # making them has moved nothing
        train(model, a, 4)
        with joined(center, other, b, period=2, share_moments=True):
            for p, q in zip(model.parameters(), other.parameters()):
                for slot in "exp_avg", "exp_avg_sq", "step":
                    assert torch.equal(a.state[p][slot], b.state[q][slot])
            assert b.state[next(other.parameters())]["step"] == 4
    assert "optimizer/" not in " ".join(hooke.center_state_dict(center.address))


# ---- processes, threads, signals ---------------------------------------------

def test_a_forked_child_is_refused(center):
    model = net()
    with joined(center, model, None, period=1) as w:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                w.step()
                text = "stepped"
            except hooke.HookeError as e:
                text = str(e)
            os.write(write, text.encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert "used in its fork" in os.read(read, 1000).decode()
        w.step()  # the parent's is as it was
        assert w.stats().exchanges == 1
        with pytest.raises(TypeError, match="cannot be pickled"):
            copy.deepcopy(w)


class Asks(torch.utils.data.Dataset):
    def __init__(self, worker):
        self.worker = worker

    def __len__(self):
        return 4

    def __getitem__(self, i):
        self.worker.stats()
        return i


def test_workers_of_a_loader(center):
    with joined(center, net(), None) as w:
        plain = DataLoader(TensorDataset(torch.arange(8)), num_workers=2,
                           multiprocessing_context="fork")
        assert sum(int(b) for (b,) in plain) == 28
        loader = DataLoader(Asks(w), num_workers=1,
                            multiprocessing_context="fork")
        with pytest.raises(hooke.HookeError, match="its fork"):
            next(iter(loader))
        w.stats()
    gc.collect()  # waits for the loader's processes: here, not in another test


def test_threads(center):
    """Training in one thread, a look at it from another, the GIL is free."""
    model = net()
    seen = []
    with joined(center, model, None, period=1) as w:
        def look():
            while not done.is_set():
                seen.append(w.stats().exchanges)

        done = threading.Event()
        thread = threading.Thread(target=look)
        thread.start()
        for _ in range(200):
            w.step()
        done.set()
        thread.join()
    assert seen and sorted(seen) == seen


TRAIN = """
import os, sys, torch, hooke.torch as hooke
model = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(model.parameters(), 0.1)
with hooke.join(model, opt, center=sys.argv[1], period=2,
                wait_seconds=60, verbose=False) as w:
    print("ready", flush=True)
    while True:
        model(torch.randn(8, 4)).square().mean().backward()
        opt.step()
        opt.zero_grad()
"""


def live(center, n, seconds=10):
    end = time.monotonic() + seconds
    while center.stats()["live"] != n and time.monotonic() < end:
        time.sleep(0.01)
    return center.stats()["live"] == n


def test_join_says_that_it_handles_sigterm(center, python):
    script = ("import signal, sys, numpy, hooke\n"
              "sys.stderr = sys.stdout\n"
              "x = numpy.zeros(3, numpy.float32)\n"
              "before = signal.getsignal(signal.SIGTERM)\n"
              "hooke.join(x, sys.argv[1]).leave()\n"
              "assert signal.getsignal(signal.SIGTERM) is before\n")
    says = "SIGTERM leaves the center and ends the process"
    assert says in python(script, center.address)
    own = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    assert says not in python(own + script, center.address)


@pytest.mark.parametrize("method", ["elastic", "diloco"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_leave_cleanly(number, method):
    """diloco: in the middle of a round that waits for somebody else."""
    with hooke.start_center(method=method, workers=2, lease_seconds=3) as c:
        other = hooke.join(nn.Linear(4, 4), None, center=c.address,
                           verbose=False)
        # A shell may have given us an ignored SIGINT for our children.
        p = subprocess.Popen([sys.executable, "-c", TRAIN, c.address],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, preexec_fn=lambda: signal.signal(
                                 signal.SIGINT, signal.SIG_DFL))
        assert p.stdout.readline() == "ready\n"
        assert live(c, 2)
        time.sleep(0.3)
        p.send_signal(number)
        # A round cannot be left in the middle: it ends with the process.
        assert live(c, 1, 10 if method == "elastic" else 60)
        _, err = p.communicate(timeout=120)
        if number == signal.SIGTERM:
            assert p.returncode == 143, err
        else:
            assert p.returncode == -signal.SIGINT and "KeyboardInterrupt" in err
        other.leave()


def test_a_worker_that_forgets_to_leave(center, python):
    python("import sys, torch, hooke.torch as hooke\n"
           "w = hooke.join(torch.nn.Linear(2, 2), None, center=sys.argv[1])\n"
           "w.step()\n", center.address)
    assert center.stats()["live"] == 0


def test_an_exception_leaves_without_a_last_exchange(center):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(ZeroDivisionError), \
            joined(center, model, optimizer, period=5):
        train(model, optimizer, 3)
        raise ZeroDivisionError
    assert center.stats()["exchanges"] == 0 and center.stats()["live"] == 0
