"""Errors that leave `@jit`, `@prim_func`, `compile` and `par_compile`: the user's line, none of our frames."""

import linecache
import sys
import traceback

import numpy as np
import pytest

import tilewright
import tilewright.language as T
from tilewright import errors
from tilewright.language.tracebacks import hide_frames, strip

PACKAGE = tilewright.__file__.removesuffix("__init__.py")
SPEC = tilewright.ArraySpec((4,), T.float32)
# Before 3.11 a re-raised exception keeps the frame that raised it again.
LEFT_OVER = 0 if sys.version_info >= (3, 11) else 1


@pytest.fixture(autouse=True)
def reference(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "reference")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))


def fails(kind, call, match=None):
    """The error of `call`, after a look at its traceback."""
    with pytest.raises(kind, match=match) as caught:
        call()
    error = caught.value
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(PACKAGE)]
    assert len(ours) <= LEFT_OVER, ours
    assert not [frame for frame in frames if "concurrent" in frame.filename]
    assert frames[-1 - len(ours)].filename == __file__ or frames[-1].filename == __file__
    return error


def line(error):
    """The user's line that an error of ours shows."""
    assert error.location.file == __file__
    return linecache.getline(__file__, error.location.line)


def lazy(kind):
    @tilewright.jit
    def scale(size):
        if kind == "outside":
            size / 0

        @T.prim_func
        def main(X: T.Tensor((size,), "float32")):
            with T.Kernel(1, threads=32):
                if kind == "zero":
                    1 / 0  # noqa: B018
                if kind == "name":
                    undefined_name  # noqa: B018, F821
                X[0] = 1.0

        return main

    return scale


def eager(kind):
    @tilewright.jit
    def scale(X):
        N = T.const("N")
        X: T.Tensor((N,), "float32")
        with T.Kernel(1, threads=32):
            if kind == "zero":
                1 / 0  # noqa: B018
            if kind == "name":
                undefined_name  # noqa: B018, F821
            if kind == "language":
                T.alloc_shared((N,), "nope")
            X[0] = 1.0

    return scale


ROADS = {
    "call": lambda function, argument: function(argument),
    "compile": lambda function, argument: function.compile(argument),
    "prim_func": lambda function, argument: function.get_prim_func(argument),
    "source": lambda function, argument: function.get_kernel_source(argument),
    "par_compile": lambda function, argument: function.par_compile([(argument,), {"size": 9}][:1]),
}


@pytest.mark.parametrize("road", ROADS)
def test_what_the_users_code_raises_while_building_comes_without_our_frames(road):
    go = ROADS[road]
    for kind, expected in (("zero", ZeroDivisionError), ("name", NameError)):
        fails(expected, lambda kind=kind: go(lazy(kind), 4))
        fails(expected, lambda kind=kind: go(eager(kind), np.zeros(4, np.float32)))
    fails(ZeroDivisionError, lambda: go(lazy("outside"), 4))
    error = fails(errors.DTypeError, lambda: go(eager("language"), SPEC if road != "call" else np.zeros(4, np.float32)))
    assert "T.alloc_shared" in line(error)


@pytest.mark.parametrize("road", ["__call__", "compile", "get_prim_func", "get_kernel_source"])
@pytest.mark.parametrize("make", [lazy, eager])
def test_wrong_counts_show_the_call(make, road):
    function = make("")
    error = fails(errors.ArgumentCountError, lambda: getattr(function, road)(1, 2), match="scale.*too many positional")
    assert "getattr(function, road)(1, 2)" in line(error)
    error = fails(errors.ArgumentCountError, lambda: function.par_compile([(1, 2)]), match="too many positional")
    assert "function.par_compile" in line(error)


def test_wrong_arguments_of_eager_kernels():
    scale = eager("")
    error = fails(errors.ArgumentTypeError, lambda: scale([1.0, 2.0]), match="declared as a tensor, and list is given")
    assert "pass an array" in error.hint
    fails(errors.ArgumentTypeError, lambda: scale(None), match="NoneType is given")
    fails(errors.ArgumentDTypeError, lambda: scale(np.zeros(4, complex)), match="'X'.*complex128")
    fails(errors.ArgumentDTypeError, lambda: scale(np.zeros(4)), match="declared as float32, and float64")
    fails(errors.ArgumentShapeError, lambda: scale(np.zeros((4, 4), np.float32)), match=r"declared as .*\(4, 4\)")
    fails(errors.ArgumentCountError, lambda: scale(), match="missing a required argument: 'X'")
    fails(errors.ArgumentCountError, lambda: scale.compile(SPEC, SPEC), match="too many positional")
    fails(errors.ArgumentStrideError, lambda: scale(np.zeros(8, np.float32)[::2]), match="not contiguous")


def test_numbers_and_tensors_are_not_mixed_up():
    @tilewright.jit
    def scale(X, n):
        X: T.Tensor((4,), "float32")
        n: T.int32
        with T.Kernel(1, threads=32):
            X[0] = n

    x = np.zeros(4, np.float32)
    scale(x, 3)
    assert x[0] == 3
    fails(errors.ArgumentTypeError, lambda: scale(x, x), match="'n' is declared as a int32 number, and a tensor")
    fails(errors.ArgumentTypeError, lambda: scale(3, 3), match="'X' is declared as .*, and int is given")
    fails(errors.ArgumentTypeError, lambda: scale(x, "3"), match="int32 takes an integer")
    fails(errors.ArgumentTypeError, lambda: scale(x, 2**40), match="outside of int32")


def decorate_try():
    @tilewright.jit
    def function(A):
        A: T.Tensor((4,), "float32")
        try:
            pass
        finally:
            pass


def decorate_dtype():
    @T.prim_func
    def function(A: T.Tensor((4,), "nope")):
        pass


def decorate_zero():
    @T.prim_func
    def function(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            1 / 0  # noqa: B018


def decorate_annotation():
    @T.prim_func
    def function(A: T.Tensor((1 // 0,), "float32")):
        pass


def decorate_helper():
    def helper(key):
        return {}[key]

    @T.prim_func
    def function(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            A[helper(3)] = 1.0


def decorate_macro():
    @T.macro
    def half(x):
        x[0] = 1 / 0

    @T.prim_func
    def function(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            half(A)


def decorate_results():
    @tilewright.jit(out_idx=0)
    def function(A):
        A: T.Tensor((4,), "float32")
        with T.Kernel(1):
            pass


@pytest.mark.parametrize(
    ("decorate", "kind"),
    [
        (decorate_try, errors.UnsupportedSyntaxError),
        (decorate_dtype, errors.DTypeError),
        (decorate_zero, ZeroDivisionError),
        (decorate_annotation, ZeroDivisionError),
        (decorate_helper, KeyError),
        (decorate_macro, ZeroDivisionError),
        (decorate_results, errors.ArgumentValueError),
        (lambda: tilewright.jit(print), errors.LanguageError),
        (lambda: tilewright.jit(5), errors.ArgumentTypeError),
        (lambda: tilewright.jit(bogus=1), errors.OptionError),
        (lambda: tilewright.jit(execution_backend="none"), errors.OptionError),
        (lambda: tilewright.jit(target="cpu")(7), errors.ArgumentTypeError),
    ],
)
def test_mistakes_that_show_at_the_decorator(decorate, kind):
    error = fails(kind, decorate)
    if isinstance(error, errors.TilewrightError):
        assert line(error).strip()


def test_compile_and_par_compile():
    for call in (
        lambda: tilewright.compile(5),
        lambda: tilewright.par_compile([5]),
        lambda: tilewright.par_compile(5),
        lambda: lazy("").par_compile(5),
        lambda: lazy("").par_compile([5]),
    ):
        error = fails(errors.ArgumentTypeError, call)
        assert "compile(" in line(error)
    for workers in (0, -3, 1.5):
        error = fails(errors.ArgumentValueError, lambda n=workers: tilewright.par_compile([5], num_workers=n))
        assert "num_workers" in line(error)
    assert tilewright.par_compile([]) == []
    fails(ZeroDivisionError, lambda: tilewright.par_compile([eager("zero").get_prim_func(SPEC)]))


def test_an_unknown_target_is_refused_when_the_kernel_is_made():
    fails(errors.TargetError, lambda: tilewright.jit(target="pdp11")(lazy("").template.func)(4), match="pdp11")


def raised(function):
    try:
        function()
    except Exception as error:
        return error


def test_errors_that_are_ours_to_debug_keep_their_frames():
    ours = raised(lambda: tilewright.Target(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16))
    assert isinstance(ours, TypeError)
    inner = raised(lambda: strip(5))  # an exception that begins in our own file
    before = traceback.extract_tb(inner.__traceback__)
    assert before[-1].filename.startswith(PACKAGE)
    hide_frames(inner)
    assert traceback.extract_tb(inner.__traceback__) == before
    verification = raised(lambda: (_ for _ in ()).throw(errors.VerificationError("broken")))
    kept = verification.__traceback__
    hide_frames(verification)
    assert verification.__traceback__ is kept
