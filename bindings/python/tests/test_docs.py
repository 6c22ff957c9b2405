"""The Python of README.md, docs/python.md and the tutorial, run in the order
of the page."""
import re
import subprocess
import sys

import pytest
import torch
from conftest import ROOT
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hooke


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(),
                      re.M | re.S)


def loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"torch": torch, "DataLoader": DataLoader, "loss": loss,
             "Net": lambda: nn.Linear(4, 3),
             "ds": TensorDataset(torch.randn(2000, 4),
                                 torch.randint(0, 3, (2000,)))}
    found = blocks(page)
    assert found
    for n, text in enumerate(found):
        # Every block is a reader's first: a center of its own, with the key
        # that the block names.
        key = next(iter(re.findall(r"\w+\.key", text)), f"{n}.key")
        if not (tmp_path / key).exists():
            hooke.generate_key(key)
        with hooke.start_center(key=key) as center:
            text = re.sub(r"host:222\d", center.address.split(":", 1)[1], text)
            if not torch.cuda.is_available():
                text = text.replace(".cuda()", "")
            if "center_state_dict(" in text and "join(" not in text:
                # Somebody has to have brought a model.
                names["hooke"].join(names["model"], None, center.address,
                                    key).leave()
            exec(compile(text, page, "exec"), names)


def test_tutorial(tmp_path):
    """A reader saves the script and runs it."""
    (script,) = blocks("docs/tutorial-pytorch.md")
    (tmp_path / "first.py").write_text(script)
    done = subprocess.run([sys.executable, "first.py"], text=True,
                          capture_output=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = re.search(r"accuracy of the center: ([\d.]+)", done.stdout)
    assert found and float(found[1]) > 0.9, done.stdout
