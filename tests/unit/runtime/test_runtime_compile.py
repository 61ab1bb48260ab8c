"""`compile`: options, results, targets, and both caches."""

import threading

import numpy as np
import pytest

import tilewright
from tilewright import errors
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Load, Var, cast, const
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import Assert, Launch, Parallel, Seq, Store
from tilewright.options import CompileOptions
from tilewright.runtime import compile as compile_module
from tilewright.runtime.cache import DiskCache, cache_key
from tilewright.source import Location
from tilewright.target import Target

I32 = dtype("int32")
OPTIONS = CompileOptions()
REFERENCE = Target("reference")


def add(amount=1.0, name="add", element="float32", place=None):
    """y[i] = x[i] + amount."""
    n, i = Var(I32, "n"), Var(I32, "i")
    x, y = (Buffer(b, (n,), dtype(element)) for b in "xy")
    value = Load(x.dtype, x, (i,))
    store = Store(y, (i,), cast(cast(value, "float32") + amount, element))
    stmts = (store,) if place is None else (Assert(value > -1.0, "positive", loc=place), store)
    body = Launch((const(1),), (Var(I32, "b"),), Seq((Parallel((i,), (n,), Seq(stmts)),)))
    return PrimFunc(name, (x, y, Var(dtype("float32"), "s")), Seq((body,)), (n,))


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_TARGET", "reference")
    monkeypatch.setattr(compile_module, "MEMORY", compile_module.OnceMap())


@pytest.fixture
def compilations(monkeypatch):
    """The names of the functions that were really compiled."""
    done = []
    real = compile_module.compile_func

    def counting(func, target, options):
        done.append(func.name)
        return real(func, target, options)

    monkeypatch.setattr(compile_module, "compile_func", counting)
    return done


def run(kernel, count=5):
    return kernel(np.arange(count, dtype=np.float32), 0.0)


@pytest.mark.parametrize("out_idx", [1, -2, [1], (-2,)])
def test_out_idx(out_idx):
    kernel = tilewright.compile(add(), out_idx=out_idx)
    assert kernel.out_idx == [1]
    np.testing.assert_array_equal(run(kernel), [1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("out_idx", "message"),
    [
        (3, "out of range: add has 3 parameters"),
        (-4, "out of range"),
        (2, "names s, which is a scalar"),
        ([1, -2], "names a parameter twice"),
        ([1.0], "not an integer"),
        ([True], "not an integer"),
    ],
)
def test_bad_out_idx(out_idx, message):
    with pytest.raises(errors.ArgumentValueError, match=message) as caught:
        tilewright.compile(add(), out_idx=out_idx, target="reference")
    assert caught.value.location.file == __file__


def test_bad_options():
    with pytest.raises(errors.OptionError, match="no option 'outidx'"):
        tilewright.compile(add(), outidx=1)
    with pytest.raises(errors.OptionError, match="execution_backend 'x'"):
        tilewright.compile(add(), execution_backend="x")
    with pytest.raises(errors.OptionError, match="must be strings"):
        tilewright.compile(add(), compile_flags=[3])
    with pytest.raises(errors.TargetError, match="unknown target"):
        tilewright.compile(add(), target="quantum")
    with pytest.raises(errors.ArgumentTypeError, match="not function") as caught:
        tilewright.compile(run)
    assert "prim_func" in caught.value.hint
    with pytest.warns(UserWarning, match="--use_fast_math"):
        options = compile_module.make_options(None, "-O1 --use_fast_math")
    assert options.opt_level == 1


def test_verbose_says_where_a_kernel_came_from(capsys):
    tilewright.compile(add(), target="reference", verbose=True)
    assert "add(x, y, s) for reference>, compiled" in capsys.readouterr().out


# --- caches -----------------------------------------------------------------------------------------


def test_memory_then_disk(compilations, monkeypatch):
    run(tilewright.compile(add(), out_idx=1))
    run(tilewright.compile(add(), out_idx=1))
    assert compilations == ["add"]
    monkeypatch.setattr(compile_module, "MEMORY", compile_module.OnceMap())
    kernel = tilewright.compile(add(), out_idx=1)
    np.testing.assert_array_equal(run(kernel), [1, 2, 3, 4, 5])
    assert compilations == ["add"] and kernel._loaded.origin == "from the disk cache"


def test_a_damaged_entry_is_compiled_again(compilations, monkeypatch, tmp_path):
    tilewright.compile(add(), out_idx=1)
    (path,) = tmp_path.rglob("*.kernel")
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], b"", whole.replace(b"KERNEL", b"kernel")):
        path.write_bytes(damaged)
        monkeypatch.setattr(compile_module, "MEMORY", compile_module.OnceMap())
        np.testing.assert_array_equal(run(tilewright.compile(add(), out_idx=1)), [1, 2, 3, 4, 5])
        assert path.read_bytes() == whole
    assert compilations == ["add"] * 5


def test_the_disk_can_be_left_out(compilations, monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    run(tilewright.compile(add(), out_idx=1))
    assert not list(tmp_path.rglob("*.kernel"))


def test_clear_cache(compilations):
    tilewright.compile(add())
    tilewright.clear_cache()
    tilewright.compile(add())
    assert compilations == ["add", "add"]


def test_one_compilation_for_many_threads(compilations):
    kernels = []
    threads = [threading.Thread(target=lambda: kernels.append(tilewright.compile(add(), out_idx=1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert compilations == ["add"]
    assert len({id(k._loaded) for k in kernels}) == 1 and len(kernels) == 8
    assert all((run(k) == [1, 2, 3, 4, 5]).all() for k in kernels)


def test_verified_and_dumped_compilations_are_done(compilations, monkeypatch):
    tilewright.compile(add())
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "1")
    tilewright.compile(add())
    assert compilations == ["add", "add"]


def key(func, target=REFERENCE, options=OPTIONS):
    return cache_key(func, target, options)


def test_what_a_key_depends_on():
    place, other = Location("/k.py", 3, 5, 3, 9), Location("/k.py", 4, 5, 4, 9)
    keys = [
        key(add()),
        key(add(amount=2.0)),
        key(add(amount=1.0000001)),
        key(add(name="plus")),
        key(add(element="float16")),
        key(add(place=place)),
        key(add(place=other)),
        key(add(), Target("cpu", features="+avx2")),
        key(add(), Target("cpu", features="+avx512f")),
        key(add(), options=CompileOptions(opt_level=1)),
        key(add(), options=CompileOptions(pass_configs=(("a", 1),))),
    ]
    assert len(set(keys)) == len(keys)
    assert key(add()) == keys[0] and key(add(place=place)) == keys[5]


def test_results_do_not_change_the_code_and_share_it(compilations):
    tilewright.compile(add())
    first, second = tilewright.compile(add(), out_idx=1), tilewright.compile(add(), out_idx=1)
    assert first._loaded is second._loaded and compilations == ["add"]


def test_par_compile(compilations):
    kernels = tilewright.par_compile([add(float(a)) for a in range(4)], out_idx=1)
    assert [float(run(k)[0]) for k in kernels] == [0, 1, 2, 3] and len(compilations) == 4
    with pytest.raises(errors.ArgumentTypeError):
        tilewright.par_compile([add(), 5])


def test_the_directory_of_the_environment_is_used(tmp_path):
    tilewright.compile(add(), target="reference")
    assert DiskCache(tmp_path).load(key(add()), REFERENCE) is not None


def test_a_dump_that_cannot_be_written_is_refused(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(file))
    with pytest.raises(errors.OptionError, match="the IR cannot be written") as caught:
        tilewright.compile(add(), target="reference")
    assert "TILEWRIGHT_DUMP" in caught.value.hint
