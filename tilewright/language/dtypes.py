"""The scalar dtypes by name; vectors (`T.float16x8`) are made on request by the package."""

from __future__ import annotations

from tilewright.ir.dtype import DType, dtype

int4 = dtype("int4")
int8 = dtype("int8")
int16 = dtype("int16")
int32 = dtype("int32")
int64 = dtype("int64")
uint4 = dtype("uint4")
uint8 = dtype("uint8")
uint16 = dtype("uint16")
uint32 = dtype("uint32")
uint64 = dtype("uint64")
float16 = dtype("float16")
bfloat16 = dtype("bfloat16")
float32 = dtype("float32")
float64 = dtype("float64")
tfloat32 = dtype("tfloat32")
float8_e4m3fn = dtype("float8_e4m3fn")
float8_e4m3 = dtype("float8_e4m3")
float8_e4m3fnuz = dtype("float8_e4m3fnuz")
float8_e5m2 = dtype("float8_e5m2")
float8_e5m2fnuz = dtype("float8_e5m2fnuz")
float8_e8m0fnu = dtype("float8_e8m0fnu")
float4_e2m1fn = dtype("float4_e2m1fn")
handle = dtype("handle")
half = float16
double = float64

__all__ = [
    "DType",
    "bfloat16",
    "double",
    "dtype",
    "float4_e2m1fn",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "float64",
    "half",
    "handle",
    "int4",
    "int8",
    "int16",
    "int32",
    "int64",
    "tfloat32",
    "uint4",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
