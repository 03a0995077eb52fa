"""Random bits that are compiled in less than half the time, and are the same bits.

JAX hashes with loops whose bodies are long, and traces them anew for every shape: 24 ms for each draw in each program,
the largest part of many of them. Here a loop has one of the twenty rounds for its body, and is written down at once.
It is slower for large arrays, which tests do not have. Another JAX than 0.10 compiles as ever.
"""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

KNOWN = version("jax").startswith("0.10.")
if KNOWN:
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir
    from jax._src.lib.mlir.dialects import hlo
    from jax._src.random.threefry2x32 import threefry2x32_p

ROTATIONS = np.array([13, 15, 26, 6, 17, 29, 16, 24], np.uint32)
ROUNDS, BETWEEN_KEYS = 20, 4
PARITY = 0x1BD11BDA


def install() -> None:
    """Replace how the hash becomes a program; must come before the first of them."""
    if KNOWN:
        mlir.register_lowering(threefry2x32_p, _lowered, platform="cpu")


def _lowered(context: Any, key_1: Any, key_2: Any, count_1: Any, count_2: Any) -> Sequence[Any]:
    """Threefry 2x32: in each round one half is added to the other, rotated and mixed; keys come in every fourth."""
    (shape, *_), key_shapes = (aval.shape for aval in context.avals_out), [aval.shape for aval in context.avals_in[:2]]
    key_shape = shape if any(key_shapes) else ()
    unsigned = ir.IntegerType.get_unsigned(32)

    def of_shape(size: Sequence[int]) -> Any:
        return ir.RankedTensorType.get(size, unsigned)

    def number(value: int) -> Any:
        return mlir.ir_constant(np.uint32(value))

    def spread(value: Any, size: Sequence[int] = shape) -> Any:
        own = tuple(ir.RankedTensorType(value.type).shape)
        axes = mlir.dense_int_array(range(len(size) - len(own), len(size)))
        return value if own == tuple(size) else hlo.broadcast_in_dim(of_shape(size), value, axes)

    def compare(left: Any, how: str, right: Any) -> Any:
        kind = hlo.ComparisonTypeAttr.get("UNSIGNED")
        return hlo.compare(left, right, hlo.ComparisonDirectionAttr.get(how), compare_type=kind)

    keys = [spread(key_1, key_shape), spread(key_2, key_shape)]
    keys.append(hlo.xor(hlo.xor(*keys), spread(number(PARITY), key_shape)))
    rows = [hlo.reshape(of_shape((1, *key_shape)), key) for key in keys]
    taken = [rows[turn % 3] for turn in range(1, 8)]
    halves = [hlo.add(spread(count), spread(key)) for count, key in zip((count_1, count_2), keys[:2], strict=True)]
    start = [number(0), *halves, hlo.concatenate(taken, mlir.i64_attr(0))]
    types = [value.type for value in start]
    loop = hlo.WhileOp(types, start)
    condition, body = (region.blocks.append(*types) for region in loop.regions)
    with ir.InsertionPoint(condition):
        hlo.return_([compare(condition.arguments[0], "LT", number(ROUNDS))])
    with ir.InsertionPoint(body):
        turn, left, right, table = body.arguments

        def row(index: Any, of: Any, size: Sequence[int]) -> Any:
            begin = [index, *(number(0) for _ in size)]
            return hlo.reshape(of_shape(size), hlo.dynamic_slice(of, begin, mlir.dense_int_array([1, *size])))

        by = row(hlo.and_(turn, number(len(ROTATIONS) - 1)), mlir.ir_constant(ROTATIONS), ())
        back = hlo.subtract(number(32), by)
        left = hlo.add(left, right)
        right = hlo.or_(hlo.shift_left(right, spread(by)), hlo.shift_right_logical(right, spread(back)))
        right = hlo.xor(left, right)
        group = hlo.shift_right_logical(turn, number(2))
        following = hlo.add(group, number(1))
        last = compare(hlo.and_(turn, number(BETWEEN_KEYS - 1)), "EQ", number(BETWEEN_KEYS - 1))
        nothing = spread(number(0), key_shape)
        second = hlo.add(row(following, table, key_shape), spread(following, key_shape))
        left = hlo.add(left, spread(hlo.select(last, row(group, table, key_shape), nothing)))
        right = hlo.add(right, spread(hlo.select(last, second, nothing)))
        hlo.return_([hlo.add(turn, number(1)), left, right, table])
    return loop.results[1:3]
