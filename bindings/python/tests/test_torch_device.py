"""The path of a GPU: a buffer on the device, a block in host memory.

Here the device is the CPU and its streams do nothing, so that what is copied
where can be tested anywhere; on a machine with a GPU the same runs there.
"""
import contextlib

import pytest
import torch
from test_torch_join import net, train
from test_torch_values import Odd, move

import hooke.torch as hooke
from hooke.torch import _values


class Nothing:
    """A stream, an event."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, _):
        return lambda *_: None


class Cuda:
    Stream = Event = Nothing
    device = stream = staticmethod(lambda _: contextlib.nullcontext())
    current_stream = staticmethod(lambda _: Nothing())


@pytest.fixture(params=["apart", "cuda"])
def device(request, monkeypatch):
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no GPU")
        return "cuda"
    monkeypatch.setattr(_values, "cuda", Cuda)
    monkeypatch.setattr(_values, "_pinned",
                        lambda n, dtype: torch.zeros(n, dtype=dtype))
    monkeypatch.setattr(_values.Values, "_is_staged", lambda _: True)
    return "cpu"


@pytest.mark.parametrize("overlap", [0, 1])
def test_every_element_once(center, device, overlap):
    model = Odd().to(device)
    w = hooke.join(model, None, center=center.address, moving_rate=0.5,
                   period=1, overlap_steps=overlap, verbose=False)
    v = w._values
    assert v.staged and v.work.data_ptr() != v.host.data_ptr()
    halves = move_on(model, device)
    w.step()
    w.flush()
    state = hooke.center_state_dict(center.address)
    for name, t in model.tensors().items():
        t = torch.view_as_real(t) if t.is_complex() else t
        if t.is_floating_point():
            want = halves[name].float()
            assert torch.equal(state[name].reshape(want.shape), want), name
            assert torch.equal(t.detach().float().cpu(), want), name
        else:
            assert torch.equal(state[name].to(t.dtype), t.cpu()), name
    w.leave()


def move_on(model, device):
    """``move`` counts on the CPU."""
    if device == "cpu":
        return move(model)
    model.to("cpu")
    halves = move(model)
    model.to(device)
    return halves


def test_training(center, device):
    model, other = net().to(device), net().to(device)
    opt = torch.optim.AdamW(model.parameters(), 1e-2)
    with hooke.join(model, opt, center=center.address, period=2,
                    moving_rate=0.5, share_moments=True, verbose=False) as w:
        train_on(model, opt, 6, device)
        assert w.stats().exchanges == 3
        again = torch.optim.AdamW(other.parameters(), 1e-2)
        with hooke.join(other, again, center=center.address, verbose=False,
                        share_moments=True):
            p, q = next(model.parameters()), next(other.parameters())
            assert torch.equal(again.state[q]["exp_avg"], opt.state[p]["exp_avg"])
            assert again.state[q]["step"] == 6


def train_on(model, opt, steps, device):
    if device == "cpu":
        return train(model, opt, steps)
    for i in range(steps):
        g = torch.Generator().manual_seed(i)
        model(torch.randn(16, 4, generator=g).to(device)).square().mean().backward()
        opt.step()
        opt.zero_grad()
    return None
