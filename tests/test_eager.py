"""What NumPy does outside of compiled programs is what JAX would do, to the bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

X = jax.device_put(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32))
N = jax.device_put(np.arange(-6, 6, dtype=np.int32).reshape(4, 3))
CASES = {
    "pieces": lambda x, n: (x[1], x[1:3, ::2], x[-1, 0], n.T, x.reshape(2, 6), x[:, None]),
    "whole": lambda x, n: (jnp.broadcast_to(x[0], (5, 3)), jnp.concatenate([x, x]), jax.lax.squeeze(x[:1], [0])),
    "numbers": lambda x, n: (jax.lax.add(x, x), jax.lax.sub(n, n), jax.lax.mul(x, x), jax.lax.div(x, x), -n, abs(x)),
    "choices": lambda x, n: (jax.lax.select(n > n.T.reshape(4, 3), x, -x), jax.lax.max(x, -x), jax.lax.floor(x)),
    "questions": lambda x, n: (jax.lax.lt(x, -x), jax.lax.eq(n, n), ~jax.lax.ge(x, x), jax.lax.ne(n, -n)),
    "kinds": lambda x, n: ((n > -n).astype(jnp.float32), jax.lax.iota(jnp.int32, 7), jnp.asarray(np.arange(3.0))),
    "edges": lambda x, n: (
        jax.lax.dynamic_slice(x, (9, -1), (2, 2)),
        jax.lax.clamp(jnp.float32(-1), x, jnp.float32(1)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits(name: str):
    compiled, eager = jax.jit(CASES[name])(X, N), CASES[name](X, N)
    for theirs, ours in zip(compiled, eager, strict=True):
        assert ours.dtype == theirs.dtype and ours.aval.weak_type == theirs.aval.weak_type
        np.testing.assert_array_equal(ours, theirs, strict=True)


def test_what_is_kept_shares_no_memory_with_what_is_given_away():
    row = X[0]
    kept = np.array(row)
    double = jax.jit(lambda x: 2 * x, donate_argnums=0)
    whole = jnp.asarray(np.array(X))
    part = whole.reshape(3, 4)
    before = np.array(part)
    double(whole)
    np.testing.assert_array_equal(part, before)
    np.testing.assert_array_equal(row, kept)


def test_keys_and_numbers_without_a_type_stay_what_they_are():
    keys = jax.random.split(jax.random.key(0), 3)
    assert keys[1].dtype == keys.dtype
    assert (jnp.int32(1) + 1.5).dtype == jnp.float32 and jnp.asarray(2.0).aval.weak_type
    assert (jax.lax.convert_element_type(X, jnp.int32) == X.astype(jnp.int32)).all()
