"""Transformers' Trainer: a callback that joins when training begins.

  transformers_finetune.py            two workers and a tiny model, made here
  transformers_finetune.py --model NAME --center HOST:2222 --key cluster.key
"""
import argparse
import tempfile

import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import hooke.torch as hooke


class Elastic(TrainerCallback):
    """Joins a center when training begins; options as of hooke.join:
    ``trainer.add_callback(Elastic(trainer, period=10))``. Started by torchrun,
    the ranks of this Trainer are one worker."""

    def __init__(self, trainer, **options):
        self.trainer = trainer
        self.options = options

    def on_train_begin(self, args, state, control, optimizer=None,
                       train_dataloader=None, **kwargs):
        # model_wrapped, not model: the one in DistributedDataParallel.
        self.worker = hooke.join(self.trainer.model_wrapped, optimizer,
                                 **self.options)
        # Every worker goes over the data in an order of its own, although all
        # of them have the Trainer's seed.
        train_dataloader.get_sampler().initial_seed += 1_000_003 * self.worker.id

    def on_train_end(self, args, state, control, **kwargs):
        self.worker.leave(last_exchange=True)
        if state.is_world_process_zero:
            print(f"worker {self.worker.id} has left after "
                  f"{state.global_step} steps", flush=True)


def net(name):
    if name is not None:
        return AutoModelForCausalLM.from_pretrained(name)
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32,
                                      n_layer=2, n_head=2))


def texts(n=256):
    """Numbers that count: a model that has learned this knows the next one."""
    start = torch.arange(n) * 7 % 64
    ids = (start[:, None] + torch.arange(16)) % 64
    return [{"input_ids": row, "labels": row} for row in ids]


def train(a):
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=net(a.model), train_dataset=texts(), args=TrainingArguments(
                folder, max_steps=a.steps, learning_rate=5e-3,
                per_device_train_batch_size=16, save_strategy="no",
                report_to=[], disable_tqdm=True))
        trainer.add_callback(Elastic(trainer, center=a.center, key=a.key, period=5))
        trainer.train()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model")
    p.add_argument("--center")
    p.add_argument("--key")
    p.add_argument("--steps", type=int, default=60)
    a = p.parse_args()
    model = net(a.model)
    if a.center:
        train(a)
        state = hooke.center_state_dict(a.center, a.key, model=model)
    else:
        state = hooke.spawn(train, workers=2, args=(a,))
    model.load_state_dict(state)
    batch = {k: torch.stack([t[k] for t in texts(32)]) for k in ("input_ids",
                                                                 "labels")}
    with torch.no_grad():
        print(f"the center's loss: {model.eval()(**batch).loss.item():.3f}")


if __name__ == "__main__":
    main()
