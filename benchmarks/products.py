"""What rounded factors could gain at most: the matrix products of an update, alone, in float32 and of bfloat16 factors.

    taskset -c 0 python benchmarks/products.py

Every product in the program of an update is timed by itself: in float32 as it is there, and of factors that are rounded
already and lie as the quickest product wants them, as if that took no time. Had an update the second in place of the
first, it would be about so many times as fast, and no code around the products can gain more. QMIX and MAPPO are those
of value_decomposition.py and learners.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from mesax.runtime import own_process

own_process()  # as a run does: memory of one update is kept for the next, which else waits for fresh pages

import jax  # noqa: E402  (the runtime must be configured first)
import jax.numpy as jnp  # noqa: E402
from learners import WORK  # noqa: E402
from simple_spread import SimpleSpread  # noqa: E402

from mesax.algorithms.value_decomposition import ValueDecomposition  # noqa: E402
from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily  # noqa: E402
from mesax.training.rollout import play  # noqa: E402
from mesax.types import Elapsed  # noqa: E402

NOW, REPEATS, COPIES = Elapsed.at(0.5, 25_000), 60, 8
Product = tuple[tuple[int, ...], tuple[int, ...], Any]
"""Shapes of both factors, and which of their axes are summed over."""


def products_in(program: Any, times: int = 1) -> Iterator[tuple[Product, int]]:
    """(product, how often it is computed) of all that a program contains."""
    for equation in program.eqns:
        if equation.primitive.name == "dot_general":
            left, right = (given.aval.shape for given in equation.invars)
            yield (left, right, equation.params["dimension_numbers"]), times
        for inner in equation.params.values():
            for part in inner if isinstance(inner, tuple | list) else (inner,):
                inside = getattr(part, "jaxpr", part)
                if hasattr(inside, "eqns"):
                    yield from products_in(inside, times * equation.params.get("length", 1))


def seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Least processor seconds of a call, once compiled."""
    compiled = jax.jit(function)
    jax.block_until_ready(compiled(*arguments))
    best = float("inf")
    for _ in range(REPEATS):
        started = time.process_time()
        jax.block_until_ready(compiled(*arguments))
        best = min(best, time.process_time() - started)
    return best


def laid_best(product: Product) -> Product:
    """The same product of factors that lie one row after another; others than those of two matrices as they are."""
    left, right, ((of_left, of_right), _) = product
    if not len(left) == len(right) == 2 or not len(of_left) == len(of_right) == 1:
        return product
    rows, inner, columns = left[1 - of_left[0]], left[of_left[0]], right[1 - of_right[0]]
    return (rows, inner), (inner, columns), (((1,), (0,)), ((), ()))


def alone(product: Product, kind: Any) -> float:
    """Seconds of a product by itself; several, one after another, so that the call hardly counts."""
    left, right, summed = product
    factors = jnp.ones((COPIES, *left), kind), jnp.ones((COPIES, *right), kind)

    def multiplied(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jax.lax.dot_general(*pair, summed, preferred_element_type=jnp.float32)

    return seconds(lambda pairs: jax.lax.map(multiplied, pairs), factors) / COPIES


def report(name: str, update: Callable[..., Any], *arguments: Any) -> None:
    """The largest products of an update, and what it would gain."""
    counts: Counter[Product] = Counter()
    for product, times in products_in(jax.make_jaxpr(update)(*arguments).jaxpr):
        counts[product] += times
    whole = seconds(update, *arguments)
    rows = []
    for product, times in counts.items():
        exact, rounded = alone(product, jnp.float32), alone(laid_best(product), jnp.bfloat16)
        rows.append((times * exact, times * min(exact, rounded), times, product))
    rows.sort(key=lambda row: -row[0])
    print(f"{name}: an update takes {1e3 * whole:.2f} ms")
    for exact, rounded, times, (left, right, _) in rows[:8]:
        print(f"  {times:>5} x {left!s:>14} {right!s:>14}   {1e3 * exact:6.2f} ms, rounded {1e3 * rounded:6.2f} ms")
    exact, rounded = sum(row[0] for row in rows), sum(row[1] for row in rows)
    print(f"  all {sum(counts.values()):,} products    {1e3 * exact:6.2f} ms, rounded {1e3 * rounded:6.2f} ms")
    print(f"  with rounded products: at most {whole / (whole - exact + rounded):.2f} times as fast", flush=True)


def qmix() -> None:
    """As in value_decomposition.py: 32 episodes of 26 steps, three agents."""
    env, key, learner = (
        ParticleClimb(num_agents=3, num_landmarks=6, horizon=26),
        jax.random.key(0),
        ValueDecomposition(),
    )
    tasks = ParticleClimbFamily(env).split(0, 1, 1).test
    state = jax.jit(lambda key: learner.init(env.spec, key))(key)
    batch = jax.jit(lambda state: play(env, tasks, learner.behavior(env.spec, state, NOW), key, 32))(state)
    report("QMIX, GRU-64", lambda state, batch: learner.update(env.spec, state, batch, NOW, key), state, batch)


def mappo() -> None:
    """As in learners.py: 16 episodes of 128 steps, three agents."""
    work, key = WORK["mappo"], jax.random.key(0)
    env, learner = SimpleSpread(3, horizon=work.horizon), work.algorithm
    tasks = jnp.zeros(1, jnp.uint32)
    state = jax.jit(lambda key: learner.init(env.spec, key))(key)
    batch = jax.jit(lambda state: play(env, tasks, learner.behavior(env.spec, state, NOW), key, 16))(state)
    report("MAPPO, GRU-128", lambda state, batch: learner.update(env.spec, state, batch, NOW, key), state, batch)


if __name__ == "__main__":
    qmix()
    mappo()
