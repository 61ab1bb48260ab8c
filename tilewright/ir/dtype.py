"""Data types: one table of scalar formats, and vectors of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.errors import DTypeError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Format:
    """A scalar format.

    kind: "int", "uint", "bool", "float" or "handle"; bits: storage bits;
    exponent, mantissa: field widths of a float; numpy: name of the NumPy or ml_dtypes type;
    suffix: IEEE-style formats have both infinities and NaN, "fn" has NaN only,
    "fnuz" has one NaN and no negative zero, "u" has no sign.
    """

    kind: str
    bits: int
    numpy: str
    exponent: int = 0
    mantissa: int = 0
    suffix: str = "ieee"


# Sources: IEEE 754-2019 (half, single, double); OCP 8-bit Floating Point Specification 1.0
# (e4m3fn, e5m2); AMD CDNA3 ISA (fnuz); OCP Microscaling Formats 1.0 (e8m0, e2m1).
FORMATS: dict[str, Format] = {
    "bool": Format("bool", 8, "bool"),
    "int4": Format("int", 4, "int4"),
    "int8": Format("int", 8, "int8"),
    "int16": Format("int", 16, "int16"),
    "int32": Format("int", 32, "int32"),
    "int64": Format("int", 64, "int64"),
    "uint4": Format("uint", 4, "uint4"),
    "uint8": Format("uint", 8, "uint8"),
    "uint16": Format("uint", 16, "uint16"),
    "uint32": Format("uint", 32, "uint32"),
    "uint64": Format("uint", 64, "uint64"),
    "float16": Format("float", 16, "float16", 5, 10),
    "bfloat16": Format("float", 16, "bfloat16", 8, 7),
    "float32": Format("float", 32, "float32", 8, 23),
    "float64": Format("float", 64, "float64", 11, 52),
    "tfloat32": Format("float", 32, "float32", 8, 10),
    "float8_e4m3fn": Format("float", 8, "float8_e4m3fn", 4, 3, "fn"),
    "float8_e4m3fnuz": Format("float", 8, "float8_e4m3fnuz", 4, 3, "fnuz"),
    "float8_e5m2": Format("float", 8, "float8_e5m2", 5, 2),
    "float8_e5m2fnuz": Format("float", 8, "float8_e5m2fnuz", 5, 2, "fnuz"),
    "float8_e8m0fnu": Format("float", 8, "float8_e8m0fnu", 8, 0, "u"),
    "float4_e2m1fn": Format("float", 4, "float4_e2m1fn", 2, 1, "fn"),
    "handle": Format("handle", 64, "uint64"),
}

ALIASES: dict[str, str] = {
    "half": "float16",
    "fp16": "float16",
    "f16": "float16",
    "bf16": "bfloat16",
    "float": "float32",
    "fp32": "float32",
    "f32": "float32",
    "double": "float64",
    "fp64": "float64",
    "f64": "float64",
    "tf32": "tfloat32",
    "int": "int32",
    "uint": "uint32",
    "long": "int64",
    "short": "int16",
    "char": "int8",
    "uchar": "uint8",
    "float8_e4m3": "float8_e4m3fn",
    "e4m3_float8": "float8_e4m3fn",
    "e5m2_float8": "float8_e5m2",
    "e4m3fn": "float8_e4m3fn",
    "e4m3fnuz": "float8_e4m3fnuz",
    "e5m2": "float8_e5m2",
    "e5m2fnuz": "float8_e5m2fnuz",
    "float4_e2m1": "float4_e2m1fn",
}

_ML_DTYPES = {"bfloat16", "int4", "uint4"}


class DType:
    """A scalar dtype or a vector of `lanes` of it; interned, so compare with `is` or `==`.

    `T.float16(x)` casts, `float16[M, K]` annotates a tensor of the declarative form; both are
    installed by the language layer (`call_hook`, `subscript_hook`).
    """

    __slots__ = ("_numpy", "format", "lanes", "name", "scalar")

    name: str
    lanes: int
    format: Format
    scalar: DType
    _numpy: np.dtype[Any] | None
    call_hook: Any = None
    subscript_hook: Any = None

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (dtype, (self.name,))

    def __call__(self, *args: Any) -> Any:
        return DType.call_hook(self, *args)

    def __getitem__(self, shape: Any) -> Any:
        return DType.subscript_hook(self, shape)

    @property
    def kind(self) -> str:
        """ "int", "uint", "bool", "float" or "handle"."""
        return self.format.kind

    @property
    def bits(self) -> int:
        """Storage bits of one lane."""
        return self.format.bits

    @property
    def nbytes(self) -> int:
        """Storage bytes of the whole value; sub-byte lanes are packed."""
        return (self.format.bits * self.lanes + 7) // 8

    @property
    def is_float(self) -> bool:
        return self.format.kind == "float"

    @property
    def is_int(self) -> bool:
        """Signed or unsigned integer."""
        return self.format.kind in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        return self.format.kind == "bool"

    @property
    def is_narrow_float(self) -> bool:
        """A float below 32 bits: stored narrow, computed in float32."""
        return self.is_float and self.format.bits < 32

    def with_lanes(self, lanes: int) -> DType:
        """The vector of `lanes` of this scalar format."""
        if lanes == self.lanes:
            return self
        base = self.scalar.name
        return dtype(base if lanes == 1 else f"{base}x{lanes}")

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of one lane (ml_dtypes for what NumPy lacks)."""
        found: np.dtype[Any]
        if self._numpy is None:
            import numpy as np

            name = self.format.numpy
            if name in _ML_DTYPES or name.startswith(("float8", "float4")):
                import ml_dtypes

                found = np.dtype(getattr(ml_dtypes, name))
            else:
                found = np.dtype(name)
            self._numpy = found
            return found
        return self._numpy

    def int_range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer or bool dtype."""
        if self.is_bool:
            return (0, 1)
        if self.kind == "int":
            return (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)
        return (0, (1 << self.bits) - 1)


_INTERNED: dict[str, DType] = {}


def dtype(spec: Any) -> DType:
    """The dtype that `spec` names: a DType, a name, a NumPy / ml_dtypes / torch dtype, or Python's bool, int, float.

    Raises DTypeError for anything else.
    """
    if isinstance(spec, DType):
        return spec
    name = _spec_name(spec)
    found = _INTERNED.get(name)
    if found is not None:
        return found
    base, separator, lanes_text = name.partition("x")
    base = ALIASES.get(base, base)
    lanes = int(lanes_text) if lanes_text.isdecimal() else 0 if separator else 1
    if base not in FORMATS or lanes < 1:
        raise DTypeError(
            f"unknown dtype {spec!r}", hint=f"known dtypes: {', '.join(sorted(FORMATS))}, and vectors such as float16x8"
        )
    canonical = base if lanes == 1 else f"{base}x{lanes}"
    found = _INTERNED.get(canonical)
    if found is None:
        found = DType.__new__(DType)
        found.name = canonical
        found.lanes = lanes
        found.format = FORMATS[base]
        found._numpy = None
        _INTERNED[canonical] = found
        found.scalar = found if lanes == 1 else dtype(base)
    _INTERNED[name] = found
    return found


_PYTHON_TYPES = {bool: "bool", int: "int32", float: "float32"}


def _spec_name(spec: Any) -> str:
    if isinstance(spec, str):
        return spec.removeprefix("torch.")
    if isinstance(spec, type) and spec in _PYTHON_TYPES:
        return _PYTHON_TYPES[spec]
    text = getattr(spec, "name", None) or getattr(spec, "__name__", None) or str(spec)
    return str(text).removeprefix("torch.")
