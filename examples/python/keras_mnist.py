"""Keras 3, whatever its back end is: a callback over the model's variables.

  KERAS_BACKEND=jax keras_mnist.py [--data FOLDER]
"""
import argparse

import keras
import numpy as np
from mnist_data import load

import hooke


class Elastic(keras.callbacks.Callback):
    """Exchanges every ``period`` batches with the center of HOOKE_CENTER; the
    other options are those of hooke.join."""

    def __init__(self, period=10, **options):
        super().__init__()
        self.period = period
        self.options = options

    def on_train_begin(self, logs=None):
        arrays = weights(self.model)
        self.worker = hooke.join(arrays, period=self.period, **self.options)
        assign(self.model, arrays)
        self.steps = 0  # since the last exchange

    def on_epoch_begin(self, epoch, logs=None):
        self.last = -1

    def on_train_batch_end(self, batch, logs=None):
        self.steps += batch - self.last  # more than 1: steps_per_execution
        self.last = batch
        if self.steps >= self.period:
            self.exchange()

    def on_train_end(self, logs=None):
        if self.steps > 0:
            self.exchange()
        self.worker.leave()

    def exchange(self):
        arrays = weights(self.model)
        self.worker.exchange(arrays, self.steps)
        assign(self.model, arrays)
        self.steps = 0


def variables(model):
    """The variables of all layers by their place in the model: kernels, and
    also the statistics of batch normalization. Keras's own names count on with
    every layer that a process makes."""
    return {f"{i}.{v.name}": v for i, v in enumerate(model.weights)}


def weights(model):
    return {name: np.array(v) for name, v in variables(model).items()}


def assign(model, arrays):
    for name, v in variables(model).items():
        v.assign(arrays[name])


def net():
    return keras.Sequential([
        keras.Input((28, 28)), keras.layers.Flatten(),
        keras.layers.Dense(64, "relu"), keras.layers.BatchNormalization(),
        keras.layers.Dense(10)])


def train(data, epochs):
    (x, y), _ = load(data)
    model = net()
    model.compile(keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(
        from_logits=True))
    model.fit(x, y, batch_size=64, epochs=epochs, verbose=0, callbacks=[Elastic()])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=3)
    a = p.parse_args()
    center = hooke.spawn(train, workers=a.workers, args=(a.data, a.epochs))
    model = net()
    assign(model, center)
    _, (x, y) = load(a.data)
    right = model.predict(x, verbose=0).argmax(1) == y
    print(f"the center's accuracy: {right.mean():.4f}")


if __name__ == "__main__":
    main()
