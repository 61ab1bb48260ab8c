"""Every example in one table: what `make demo` runs."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator

from harness import Row, measure, show

EXAMPLES = (
    "matmul batched_matmul softmax rms_norm layer_norm elementwise attention_mask flash_attention gemv histogram conv2d"
)


def rows(target: str, quick: bool, only: list[str]) -> Iterator[Row]:
    """All cases of all examples, measured one by one."""
    for name in only or EXAMPLES.split():
        for case in importlib.import_module(name).cases(target, quick):
            yield measure(case, 3)


def main() -> int:
    """Run the examples; the exit status is 1 when a result is out of its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("only", nargs="*", metavar="example", help=f"default: {EXAMPLES}")
    arguments = parser.parse_args()
    return 0 if show(rows(arguments.target, arguments.quick, arguments.only), "Tilewright on this CPU") else 1


if __name__ == "__main__":
    raise SystemExit(main())
