"""Workers that train one PyTorch model together.

  torch_mnist.py                      four workers here, made data
  torch_mnist.py --data FOLDER        MNIST's files
  torch_mnist.py --center HOST:2222 --key cluster.key --workers 3
                                      one worker of a cluster: run it on each
                                      machine, beside one `hooke center`
"""
import argparse

import torch
from mnist_data import load
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hooke.torch as hooke


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(),
                         nn.Linear(256, 10))


def train(a):
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    (x, y), _ = load(a.data)
    ds = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    model = net().to(device)
    opt = torch.optim.SGD(model.parameters(), a.rate, momentum=0.9)
    with hooke.join(model, opt, center=a.center, key=a.key, period=a.period,
                    workers=a.workers if a.center else None) as w:
        loader = DataLoader(ds, batch_size=64, sampler=w.sampler(ds))
        loss = torch.tensor(float("nan"))  # a late worker may find no data left
        for _ in range(a.epochs):
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
                loss.backward()
                opt.step()
                opt.zero_grad()
        s = w.stats()
        print(f"worker {w.id}: loss {loss.item():.3f}, {s.exchanges} exchanges, "
              f"{s.exposed_seconds:.2f} s of waiting", flush=True)


def accuracy(state, a):
    _, (x, y) = load(a.data)
    model = net()
    model.load_state_dict(state)
    with torch.no_grad():
        return (model(torch.from_numpy(x)).argmax(1).numpy() == y).mean()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data")
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--period", type=int, default=10)
    p.add_argument("--rate", type=float, default=0.05)
    p.add_argument("--center")
    p.add_argument("--key")
    a = p.parse_args()
    if a.center:
        train(a)
        state = hooke.center_state_dict(a.center, a.key)
    else:
        state = hooke.spawn(train, workers=a.workers, args=(a,))
    print(f"the center's accuracy: {accuracy(state, a):.4f}")


if __name__ == "__main__":
    main()
