"""Keras 3, whatever its back end is: a callback over the model's variables.

  KERAS_BACKEND=jax keras_mnist.py [--data FOLDER]
"""
import argparse

import keras
import numpy as np
from mnist_data import load

import hooke


class Elastic(keras.callbacks.Callback):
    """Exchanges every ``period`` batches with the center of HOOKE_CENTER."""

    def __init__(self, period=10):
        super().__init__()
        self.period = period

    def _arrays(self):
        return {v.path: np.array(v) for v in self.model.trainable_variables}

    def _put(self, arrays):
        for v in self.model.trainable_variables:
            v.assign(arrays[v.path])

    def on_train_begin(self, logs=None):
        arrays = self._arrays()
        self.worker = hooke.join(arrays, period=self.period)
        self._put(arrays)

    def on_train_batch_end(self, batch, logs=None):
        if (batch + 1) % self.period == 0:
            arrays = self._arrays()
            self.worker.exchange(arrays, self.period)
            self._put(arrays)

    def on_train_end(self, logs=None):
        self.worker.leave()


def net():
    return keras.Sequential([
        keras.Input((28, 28)), keras.layers.Flatten(),
        keras.layers.Dense(64, "relu", name="hidden"),
        keras.layers.Dense(10, name="logits")])


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
    for v in model.trainable_variables:
        v.assign(center[v.path])
    _, (x, y) = load(a.data)
    right = model.predict(x, verbose=0).argmax(1) == y
    print(f"the center's accuracy: {right.mean():.4f}")


if __name__ == "__main__":
    main()
