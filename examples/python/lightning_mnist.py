"""Lightning: a callback of three methods. lightning_mnist.py [--data FOLDER]"""
import argparse
import logging
import os

import lightning
import torch
from mnist_data import load
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hooke.torch as hooke


class Elastic(lightning.Callback):
    """Joins the center of HOOKE_CENTER, or of the options given. With
    strategy="ddp" the ranks of this Trainer are one worker."""

    def __init__(self, **options):
        self.options = options
        self.worker = None

    def on_train_start(self, trainer, module):
        # trainer.model, not module: the model that the strategy has wrapped.
        self.worker = hooke.join(trainer.model, trainer.optimizers[0],
                                 **self.options)

    def on_train_end(self, trainer, module):
        self.worker.leave(last_exchange=True)
        if trainer.is_global_zero:
            print(f"worker {self.worker.id} has left after "
                  f"{trainer.global_step} steps", flush=True)

    def on_exception(self, trainer, module, exception):
        if self.worker is not None:
            self.worker.leave()


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(),
                                 nn.Linear(64, 10))

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


def train(data, epochs):
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    # Every worker goes over the data in an order of its own.
    lightning.seed_everything(int(os.environ.get("HOOKE_INDEX", 0)))
    (x, y), _ = load(data)
    ds = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    trainer = lightning.Trainer(
        max_epochs=epochs, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[Elastic(period=10)])
    trainer.fit(Digits(), DataLoader(ds, batch_size=64, shuffle=True))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=3)
    a = p.parse_args()
    model = Digits()
    model.load_state_dict(hooke.spawn(train, workers=a.workers,
                                      args=(a.data, a.epochs)))
    _, (x, y) = load(a.data)
    with torch.no_grad():
        right = model.net(torch.from_numpy(x)).argmax(1).numpy() == y
    print(f"the center's accuracy: {right.mean():.4f}")


if __name__ == "__main__":
    main()
