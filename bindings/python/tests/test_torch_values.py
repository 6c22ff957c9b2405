"""Every element of every entry is exchanged, and once."""
import pytest
import torch
from torch import nn

import hooke.torch as hooke


class Odd(nn.Module):
    """Shapes, types and layouts that have broken exchanges elsewhere."""

    def __init__(self):
        super().__init__()
        f32 = {
            "scalar": torch.zeros(()), "one": torch.zeros(1),
            "empty": torch.zeros(0), "empty2": torch.zeros(3, 0, 2),
            "large": torch.zeros(70001), "chunk": torch.zeros(32768),
            "turned": torch.zeros(5, 3).t(),
            "channels": torch.zeros(4, 3, 2, 5).to(
                memory_format=torch.channels_last),
            "strided": torch.zeros(7, 6)[::2, 1::2],
            "deep": torch.zeros(1, 2, 1, 2, 1, 2, 1, 2, 2),
            "frozen": torch.zeros(17),
        }
        block = torch.zeros(20)  # two that live in one storage
        f32["left"], f32["right"] = block[:9], block[9:]
        weave = torch.zeros(6, 4)  # and two that take turns in it
        f32["even"], f32["uneven"] = weave[:, ::2], weave[:, 1::2]
        for name, t in f32.items():
            setattr(self, name, nn.Parameter(t))
        self.frozen.requires_grad_(False)
        self.bf16 = nn.Parameter(torch.zeros(33, dtype=torch.bfloat16))
        self.fp16 = nn.Parameter(torch.zeros(3, 5, dtype=torch.float16))
        self.f64 = nn.Parameter(torch.zeros(11, dtype=torch.float64))
        self.complex = nn.Parameter(torch.zeros(4, dtype=torch.complex64))
        self.inner = nn.Linear(3, 3)
        self.tied = self.inner.weight
        self.alias = nn.Parameter(self.inner.bias.detach())  # by memory
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("short", torch.zeros(2, dtype=torch.int16))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("flag", torch.tensor([True, False, True]))
        with torch.no_grad():
            for p in self.parameters():
                p.zero_()

    def tensors(self):
        """Everything once, under the name that the center has."""
        found = dict(self.named_parameters())
        found.pop("inner.bias")  # "alias" comes first
        found.update(self.named_buffers())
        return found


def move(model):
    """Adds to every element an even number of its own; returns the halves."""
    halves, at = {}, 1
    with torch.no_grad():
        for name, t in model.tensors().items():
            if t.dtype is torch.bool:
                t.logical_not_()
                continue
            if t.is_complex():
                t = torch.view_as_real(t)
            k = torch.arange(at, at + t.numel(), dtype=torch.float64).reshape(t.shape)
            if t.dtype not in (torch.float32, torch.float64, torch.int64):
                k %= 50
            at += t.numel()
            t.add_((2 * k).to(t.dtype))
            halves[name] = k
    return halves


@pytest.mark.parametrize("overlap", [0, 1])
def test_every_element_once(center, overlap):
    model = Odd()
    w = hooke.join(model, None, center=center.address, moving_rate=0.5,
                   period=1, overlap_steps=overlap, verbose=False)
    halves = move(model)
    w.step()
    w.flush()
    state = hooke.center_state_dict(center.address)
    assert state.keys() == model.state_dict().keys()
    for name, t in model.tensors().items():
        if t.is_complex():
            t = torch.view_as_real(t)
        if not t.is_floating_point():  # copied
            assert torch.equal(state[name].to(t.dtype), t), name
            continue
        # Half of the way for each; a second exchange would make it 3/4.
        want = halves[name].float()
        got = state[name].reshape(want.shape)
        assert torch.equal(got, want), name
        assert torch.equal(t.detach().float(), want), name
    w.leave()


def test_a_joining_model_gets_every_element(center):
    first, second = Odd(), Odd()
    move(first)
    with hooke.join(first, None, center=center.address, verbose=False), \
            hooke.join(second, None, center=center.address, verbose=False):
        for (name, a), b in zip(first.tensors().items(),
                                second.tensors().values()):
            assert torch.equal(a, b), name
        assert second.channels.is_contiguous(memory_format=torch.channels_last)
        assert second.turned.stride() == (1, 3)


def test_the_library_writes_to_no_gap(center):
    """Rows beside a strided parameter stay as they are."""
    base = torch.arange(42.0).reshape(7, 6)
    model = nn.Module()
    model.p = nn.Parameter(base[::2, 1::2])
    before = base.clone()
    with hooke.join(model, None, center=center.address, verbose=False) as w:
        with torch.no_grad():
            model.p.add_(1)
        w.exchange_now()
    outside = torch.ones(7, 6, dtype=torch.bool)
    outside[::2, 1::2] = False
    assert torch.equal(base[outside], before[outside])


def test_pulls_below_the_resolution_of_bf16_add_up(center):
    """The center moves by steps that a bf16 parameter cannot show."""
    still, moving = nn.Module(), nn.Module()
    still.p = nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    moving.p = nn.Parameter(torch.ones(8))
    with hooke.join(still, None, center=center.address, moving_rate=0.1,
                    verbose=False) as a, \
            hooke.join(moving, None, center=center.address, moving_rate=0.1,
                       verbose=False) as b:
        for _ in range(200):
            with torch.no_grad():
                moving.p.fill_(1.01)
            b.exchange_now()
            a.exchange_now()
        assert still.p[0].item() > 1.005  # one step of bf16 is 0.0078
        master = a.state_dict()["masters"]["p"]
        assert abs(master[0].item() - 1.01) < 1e-3


def test_float64_keeps_its_precision(center):
    model = nn.Module()
    model.p = nn.Parameter(torch.tensor([1 + 1e-12, 2.0], dtype=torch.float64))
    with hooke.join(model, None, center=center.address, moving_rate=0.5,
                    verbose=False) as w:
        w.exchange_now()
        assert model.p[0].item() == 1 + 1e-12
        with torch.no_grad():
            model.p[1] += 1
        w.exchange_now()
        assert model.p.tolist() == [1 + 1e-12, 2.5]


def _expanded():
    m = nn.Module()
    m.p = nn.Parameter(torch.zeros(1).expand(4))
    return m


def _overlapping():
    m, base = nn.Module(), torch.zeros(10)
    m.a, m.b = nn.Parameter(base[:6]), nn.Parameter(base[5:])
    return m


def _small_floats():
    m = nn.Linear(2, 2)
    m.register_buffer("scale", torch.zeros(2, dtype=torch.float8_e4m3fn))
    return m


@pytest.mark.parametrize("model, says", [
    (_expanded, "expanded"), (_overlapping, "overlap in memory"),
    (lambda: nn.LazyLinear(3), "no shape yet"),
    (lambda: nn.Linear(2, 2, device="meta"), "no memory"),
    (lambda: nn.ReLU(), "no parameter"), (_small_floats, "float8"),
])
def test_models_that_cannot_be_exchanged(center, model, says):
    with pytest.raises(hooke.HookeError, match=says):
        hooke.join(model(), None, center=center.address)


def test_share(center):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    said = {"0.bias": "local", "1.running_mean": "copy", "1.running_var": False}
    with hooke.join(model, None, center=center.address, moving_rate=0.5,
                    share=lambda name, t: said.get(name), verbose=False) as w:
        model[1].running_mean.fill_(3)
        w.exchange_now()
        assert torch.equal(model[1].running_mean, torch.full((2,), 3.0))
    state = hooke.center_state_dict(center.address)
    assert "0.bias" not in state and "1.running_var" not in state
    assert torch.equal(state["1.running_mean"], torch.full((2,), 3.0))
    whole = hooke.center_state_dict(center.address, model=model)
    assert whole.keys() == model.state_dict().keys()
    model.load_state_dict(whole)


@pytest.mark.parametrize("said, says", [("mean", "'average', 'copy'"),
                                        (False, "left out all")])
def test_share_says_nonsense(center, said, says):
    with pytest.raises(hooke.HookeError, match=says):
        hooke.join(nn.Linear(2, 2), None, center=center.address,
                   share=lambda *_: said)


def test_integers_have_no_average(center):
    model = nn.Linear(2, 2)
    model.register_buffer("n", torch.zeros(1, dtype=torch.int64))
    with pytest.raises(hooke.HookeError, match="integers can be"):
        hooke.join(model, None, center=center.address, share=lambda *_: "average")


def test_buffers_that_are_replaced(center):
    model = nn.BatchNorm1d(2)
    with hooke.join(model, None, center=center.address, moving_rate=0.5,
                    verbose=False) as w:
        model.running_mean = model.running_mean + 4
        w.exchange_now()
        assert torch.equal(model.running_mean, torch.full((2,), 2.0))
        model.running_mean = torch.zeros(3)
        with pytest.raises(hooke.HookeError, match="running_mean had shape"):
            w.exchange_now()
        model.running_mean = torch.zeros(2)


class Tied(nn.Module):
    """One parameter with two names, a layer with two names, and parts that are
    called module."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.module = nn.Linear(3, 3)
        self.again = self.module
        self.weight = nn.Parameter(torch.randn(3))
        self.register_buffer("frequency", torch.randn(4), persistent=False)
        self.register_buffer("scale", torch.randn(4))


@pytest.mark.parametrize("wrap", [
    lambda m: m, lambda m: torch.compile(m, backend="eager"), nn.DataParallel,
    lambda m: nn.DataParallel(torch.compile(m, backend="eager"))])
def test_the_center_loads_strictly(center, wrap):
    """Into a plain model and, with model=, into one that is wrapped."""
    model, other, wrapped = Tied(), Tied(), wrap(Tied())
    with hooke.join(wrap(model), None, center=center.address, verbose=False):
        state = hooke.center_state_dict(center.address)
        assert state.keys() == model.state_dict().keys()
        other.load_state_dict(state)
        wrapped.load_state_dict(hooke.center_state_dict(center.address,
                                                        model=wrapped))
    joining = Tied()
    with hooke.join(joining, None, center=center.address, verbose=False):
        # A buffer that no state_dict has is exchanged nevertheless.
        assert torch.equal(joining.frequency, model.frequency)
    for a, b, c in zip(model.state_dict().values(), other.state_dict().values(),
                       wrapped.state_dict().values()):
        assert torch.equal(a, b) and torch.equal(a, c)


def test_another_model_is_named(center):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with hooke.join(model, None, center=center.address, verbose=False):
        for other, text in [
                (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)),
                 r"1.weight \[3,4\] \(float32, trainable\) in this process and "
                 r"1.weight \[2,4\] \(float32, trainable\) in the center"),
                (nn.Sequential(nn.Linear(4, 4)),
                 r"another model: 1.weight \[2,4\] .* is only in the center"),
                (nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)),
                 r"2.weight \[2,4\] .* is only in this process")]:
            with pytest.raises(hooke.HookeError, match=text):
                hooke.join(other, None, center=center.address)


def test_the_tensor_that_is_not_finite_is_named(center):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with hooke.join(model, None, center=center.address, verbose=False) as w:
        with torch.no_grad():
            model[1].weight[1, 2] = float("nan")
        with pytest.raises(hooke.HookeError,
                           match="element 6 of 1.weight is nan"):
            w.exchange_now()
        model[1].weight.data.zero_()
    with hooke.start_center() as c:
        model[0].bias.data[3] = float("inf")
        with pytest.raises(hooke.HookeError, match="element 3 of 0.bias is inf"):
            hooke.join(model, None, center=c.address)


def test_int8_names_the_block_that_is_not_finite(center):
    model = nn.Sequential(nn.Linear(10, 30), nn.Linear(30, 2))
    with hooke.join(model, None, center=center.address, compression="int8",
                    verbose=False) as w:
        with torch.no_grad():
            model[1].weight[1, 2] = float("nan")
        with pytest.raises(hooke.HookeError, match="a difference between "
                           "element 256 of 0.weight and element 1 of 1.bias is "
                           "not finite"):
            w.exchange_now()
        model[1].weight.data.zero_()


def test_tensors_in_files(tmp_path):
    tensors = {"h": torch.randn(3, 4).bfloat16(), "w": torch.randn(2).t(),
               "i": torch.arange(3)}
    hooke.save(tmp_path / "m.safetensors", tensors)
    found = hooke.load(tmp_path / "m.safetensors")
    from safetensors.torch import load_file
    theirs = load_file(tmp_path / "m.safetensors")
    for name, t in tensors.items():
        assert torch.equal(found[name], t) and torch.equal(theirs[name], t)
        assert found[name].dtype == t.dtype == theirs[name].dtype
