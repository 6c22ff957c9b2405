"""The recipes of Lightning and Transformers on two ranks of DDP; started by
test_recipes.py: torchrun recipes.py KIND CENTER. After every step the ranks
compare their replicas, and rank 0 prints what it found."""
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


def run_transformers(center):
    from transformers import Trainer, TrainingArguments
    from transformers_finetune import Elastic, net, texts

    class Compares(Trainer):
        def training_step(self, model, inputs, *args, **kwargs):
            loss = super().training_step(model, inputs, *args, **kwargs)
            compare(model, inputs["input_ids"][:, 0])
            return loss

    with tempfile.TemporaryDirectory() as folder:
        trainer = Compares(
            model=net(None), train_dataset=texts(), args=TrainingArguments(
                folder, max_steps=STEPS, per_device_train_batch_size=4,
                save_strategy="no", report_to=[], disable_tqdm=True,
                use_cpu=True, ddp_backend="gloo"))
        trainer.add_callback(Elastic(trainer, center=center, period=PERIOD,
                                     overlap_steps=0))
        trainer.train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"lightning": run_lightning, "transformers": run_transformers}[sys.argv[1]](
        sys.argv[2])
    # Gloo's threads can end a process with "terminate called without an active
    # exception" once Python is gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
