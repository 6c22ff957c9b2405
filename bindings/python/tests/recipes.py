"""The recipes of Lightning, Transformers and Keras; started by test_recipes.py:
recipes.py KIND CENTER. On two ranks of DDP (torchrun) the ranks compare their
replicas after every step, and rank 0 prints what it found."""
import json
import logging
import os
import pathlib
import sys
import tempfile

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]
                       / "examples" / "python"))
STEPS = 12
PERIOD = 5  # two exchanges, and one at the end


def compare(model, batch):
    """Whether the ranks have the same parameters, and other batches."""
    mine = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    both = [torch.zeros_like(mine) for _ in range(2)]
    dist.all_gather(both, mine)
    batches = [None, None]
    dist.all_gather_object(batches, batch.tolist())
    if dist.get_rank() == 0:
        print("replicas", "equal" if torch.equal(*both) else "differ",
              "batches", "equal" if batches[0] == batches[1] else "differ",
              flush=True)


def run_lightning(center):
    import lightning
    from lightning_mnist import Digits, Elastic
    from mnist_data import load
    from torch.utils.data import DataLoader, TensorDataset

    class Compare(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            compare(module, batch[0][:, 0, 0])

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    (x, y), _ = load(examples=2 * 8 * STEPS)
    ds = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    lightning.Trainer(
        max_epochs=1, accelerator="cpu", devices=2, strategy="ddp",
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Elastic(center=center, period=PERIOD, overlap_steps=0),
                   Compare()]
    ).fit(Digits(), DataLoader(ds, batch_size=8, shuffle=True))


def run_lightning_alone(center):
    """A join that fails is what the user reads."""
    import lightning
    from lightning_mnist import Digits, Elastic
    from torch.utils.data import DataLoader, TensorDataset

    ds = TensorDataset(torch.zeros(2, 28, 28), torch.zeros(2, dtype=torch.long))
    try:
        lightning.Trainer(
            max_epochs=1, accelerator="cpu", logger=False,
            enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[Elastic(center=center, connect_seconds=0.2)]
        ).fit(Digits(), DataLoader(ds))
    except Exception as error:
        print(type(error).__name__, error, flush=True)


def fit_transformers(center, seen, **more):
    """seen(model, the first token of each text) after every step."""
    from transformers import Trainer, TrainingArguments
    from transformers_finetune import Elastic, net, texts

    class Looks(Trainer):
        def training_step(self, model, inputs, *args, **kwargs):
            loss = super().training_step(model, inputs, *args, **kwargs)
            seen(model, inputs["input_ids"][:, 0])
            return loss

    with tempfile.TemporaryDirectory() as folder:
        trainer = Looks(
            model=net(None), train_dataset=texts(), args=TrainingArguments(
                folder, max_steps=STEPS, per_device_train_batch_size=4,
                save_strategy="no", report_to=[], disable_tqdm=True,
                use_cpu=True, **more))
        trainer.add_callback(Elastic(trainer, center=center, period=PERIOD,
                                     overlap_steps=0))
        trainer.train()


def run_transformers(center):
    fit_transformers(center, compare, ddp_backend="gloo")


def worker_of_transformers():
    order = []
    fit_transformers(None, lambda _, tokens: order.append(tokens.tolist()))
    print(json.dumps({"order": order}), flush=True)


def run_two_workers(_):
    import hooke.torch as hooke
    hooke.spawn(worker_of_transformers, workers=2)


def run_keras(center):
    """With one worker and a moving rate of 0.5, an exchange leaves the worker
    and the center with the same values."""
    os.environ["HOOKE_CENTER"] = center
    import keras
    import numpy as np
    from keras_mnist import Elastic, assign, net, weights
    from mnist_data import load

    import hooke
    (x, y), _ = load()
    keras.utils.set_random_seed(1)
    model = net()
    before = weights(model)
    model.compile(keras.optimizers.Adam(1e-2),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, y, batch_size=64, epochs=3, verbose=0, callbacks=[Elastic()])
    other = net()  # Keras gives its layers other names
    assign(other, hooke.center_arrays(center))
    after, other = weights(model), weights(other)
    print(json.dumps({
        "moved": sum(bool((before[n] != after[n]).any()) for n in after),
        "equal": sum(np.allclose(after[n], other[n], atol=1e-6)
                     for n in after)}), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"lightning": run_lightning, "lightning_alone": run_lightning_alone,
     "transformers": run_transformers, "two_workers": run_two_workers,
     "keras": run_keras}[sys.argv[1]](sys.argv[2])
    # Gloo's threads can end a process with "terminate called without an active
    # exception" once Python is gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
