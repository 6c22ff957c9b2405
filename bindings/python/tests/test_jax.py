"""Workers over trees of JAX's arrays."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hooke.jax as hooke


def tree():
    return {"dense": {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.zeros(3)},
            "half": [jnp.ones(4, jnp.bfloat16)], "n": jnp.array(3, jnp.int32)}


def test_exchange(center):
    params, w = hooke.join(tree(), center.address, moving_rate=0.5,
                           verbose=False)
    with w:
        before = params
        moved = jax.tree_util.tree_map(lambda a: a + jnp.array(2, a.dtype), params)
        params = w.exchange(moved)
        np.testing.assert_array_equal(params["dense"]["w"],
                                      before["dense"]["w"] + 1)
        assert params["half"][0].dtype == jnp.bfloat16
        assert params["half"][0][0] == 2 and params["n"] == 5
        kept = np.asarray(params["dense"]["b"]).copy()
        w.exchange(moved)  # gives new arrays, leaves the others alone
        np.testing.assert_array_equal(params["dense"]["b"], kept)
        np.testing.assert_array_equal(before["dense"]["w"],
                                      tree()["dense"]["w"])
        found = hooke.center_params(tree(), center.address)
        assert found["n"] == 5 and found["dense"]["w"].shape == (2, 3)


def test_steps_under_jit(center):
    @jax.jit
    def step(p, x):
        return jax.tree_util.tree_map(
            lambda a, g: a - 0.1 * g, p,
            jax.grad(lambda p: jnp.mean((x @ p["w"] - 1) ** 2))(p))

    params, w = hooke.join({"w": jnp.zeros(4)}, center.address, period=3,
                           verbose=False)
    with w:
        for i in range(12):
            params = w.step(step(params, jax.random.normal(
                jax.random.key(i), (8, 4))))
        assert w.stats().exchanges == 4
    assert "['w']" in center.arrays()


def test_another_tree(center):
    params, w = hooke.join({"w": jnp.zeros(4)}, center.address, verbose=False)
    with w, pytest.raises(hooke.HookeError, match="tree was"):
        w.exchange({"v": jnp.zeros(4)})
    with pytest.raises(hooke.HookeError, match="has no"):
        hooke.center_params({"v": jnp.zeros(4)}, center.address)
