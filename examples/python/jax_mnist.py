"""Workers that train one JAX model together: jax_mnist.py [--data FOLDER]."""
import argparse

import jax
import jax.numpy as jnp
import numpy as np
from mnist_data import load

import hooke.jax as hooke


def init():
    a, b = jax.random.split(jax.random.key(0))
    return {"w1": jax.random.normal(a, (784, 128)) * 0.05, "b1": jnp.zeros(128),
            "w2": jax.random.normal(b, (128, 10)) * 0.05, "b2": jnp.zeros(10)}


def logits(p, x):
    return jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


def loss(p, x, y):
    return -jnp.mean(jax.nn.log_softmax(logits(p, x))[jnp.arange(len(y)), y])


@jax.jit
def train_step(p, x, y):
    return jax.tree_util.tree_map(lambda v, g: v - 0.1 * g, p,
                                  jax.grad(loss)(p, x, y))


def train(data, epochs):
    (x, y), _ = load(data)
    x = x.reshape(len(x), -1)
    params, w = hooke.join(init(), period=5)
    with w:
        g = np.random.default_rng(w.id)
        for _ in range(epochs * len(x) // 64):
            pick = g.integers(0, len(x), 64)
            params = w.step(train_step(params, x[pick], y[pick]))
        print(f"worker {w.id}: {w.stats().exchanges} exchanges", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=2)
    a = p.parse_args()
    found = hooke.spawn(train, workers=a.workers, args=(a.data, a.epochs))
    params = {k: found[f"['{k}']"] for k in init()}
    _, (x, y) = load(a.data)
    right = logits(params, x.reshape(len(x), -1)).argmax(1) == y
    print(f"the center's accuracy: {right.mean():.4f}")


if __name__ == "__main__":
    main()
