"""What the passes rely on the index algebra to see."""

from tilewright.analysis.index import IndexContext
from tilewright.ir.expr import INT32, INT64, Const, Var, binary, select


def variables(*bounds):
    context = IndexContext()
    made = []
    for number, (lo, hi) in enumerate(bounds):
        variable = Var(INT32, f"v{number}")
        context.bind(variable, lo, hi)
        made.append(variable)
    return context, made


def test_digits_of_a_mixed_radix_number_come_apart():
    context, (i, j) = variables((0, 7), (0, 15))
    assert context.simplify((i * 16 + j) // 16) is i
    assert context.simplify((i * 16 + j) % 16) is j


def test_terms_cancel():
    context, (i, j) = variables((None, None), (None, None))
    assert context.simplify((i + j) * 3 - i * 3 - j * 2) is j
    zero = context.simplify((i + 1) * 32 - i * 32 - 32)
    assert isinstance(zero, Const) and zero.value == 0


def test_a_whole_tile_is_in_range_when_its_last_row_is():
    context, (block, row) = variables((0, 9), (0, 127))
    assert not context.prove(block * 128 + row < 1000)
    with context.assuming(block * 128 + 127 < 1000):
        assert context.prove(block * 128 + row < 1000)
    assert not context.prove(block * 128 + row < 1000)


def test_a_size_known_at_launch_bounds_its_loop():
    context, (n, i) = variables((0, None), (0, None))
    with context.assuming(i < n):
        assert context.prove(i < n)
        assert not context.prove(i + 1 < n)


def test_divisibility():
    context, (i, j) = variables((0, 9), (0, 9))
    assert context.modular(i * 128 + j * 16 + 5) == (16, 5)
    assert context.divisible(i * 128 + j * 64, 64)
    assert not context.divisible(i * 128 + j, 2)


def test_int64_is_kept():
    context = IndexContext()
    big = Var(INT64, "big")
    assert context.simplify(big * 4 + big).dtype is INT64


def test_lanes_do_not_carry_into_the_quotient():
    context, (k, lane) = variables((None, None), (0, 7))
    step = Var(INT32, "step")
    context.bind(step, 0, None, 8)
    place = k * 32 + step + lane
    assert str(context.simplify(place // 64 - (k * 32 + step) // 64)) == str(context.simplify(k - k))
    assert context.linear(place % 64).coefficient(lane) == 1
    assert context.linear((place + 3) % 64).coefficient(lane) == 0  # lane + 3 may carry


def test_a_common_factor_leaves_a_remainder():
    context, (i, _) = variables((None, None), (0, 7))
    assert context.modular(i * 8 % 64) == (8, 0)


def test_what_was_decided_under_an_assumption_ends_with_it():
    context, (i, _) = variables((None, None), (0, 7))
    item = select(i < 8, i * 0 + 1, i * 0 + 2)
    doubled = binary("mul", item, 2)
    with context.assuming(i < 8):
        assert context.bounds(doubled) == (2, 2)
    assert context.bounds(doubled) == (2, 4)


def test_facts_about_a_selection_end():
    context, (i, j) = variables((None, None), (0, 7))
    item = select(binary("ne", i // 3, 1), i, j)
    with context.assuming(binary("ge", item, 5)):
        assert context.prove(binary("ge", item, 4))
