"""What the loops of a declarative kernel are: parallel nests, contractions, reductions and maps.

Everything here reads syntax trees and answers questions; `emit` builds the Tile IR.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.frontend.declarative.flow import flow_of, target_names
from tilewright.frontend.declarative.program import Loop, Program, call_name, read_loops
from tilewright.ir.dtype import DType


@dataclass(frozen=True)
class Nest:
    """Loops whose iterations are independent, and what is done in each iteration."""

    loops: tuple[Loop, ...]
    body: tuple[ast.stmt, ...]
    node: ast.For


@dataclass(frozen=True)
class Product:
    """`acc += a * b` inside a loop over `k`: a term of a contraction."""

    accumulator: str
    left: Operand
    right: Operand
    node: ast.stmt


@dataclass(frozen=True)
class Operand:
    """An element of a tensor, cast to a float of 32 bits or more where `cast` is given."""

    element: ast.Subscript
    cast: DType | None


@dataclass(frozen=True)
class Update:
    """`acc = acc op value`: a term of a reduction.  op: "sum", "max" or "min"."""

    accumulator: str
    op: str
    value: ast.expr
    node: ast.stmt


@dataclass(frozen=True)
class ReductionLoop:
    """A loop that only defines locals and updates accumulators."""

    loop: Loop
    locals: tuple[ast.Assign, ...]
    updates: tuple[Update, ...]


@dataclass(frozen=True)
class MapLoop:
    """A loop whose iterations only define locals and store elements of their own."""

    loop: Loop
    body: tuple[ast.stmt, ...]


@dataclass(frozen=True)
class ContractionLoop:
    """A loop that only adds products of two elements to accumulators."""

    loop: Loop
    products: tuple[Product, ...]


def subscripts(nodes: Sequence[ast.AST], *, stored: bool | None = None) -> Iterator[ast.Subscript]:
    """All subscripts of tensors; only stores (`stored=True`) or only loads where asked.  `+=` is both."""
    for root in nodes:
        for node in ast.walk(root):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript) and stored is not True:
                yield node.target
            if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
                continue
            is_store = isinstance(node.ctx, ast.Store)
            if node.value.id != "block_size" and (stored is None or stored == is_store):
                yield node


def assigned_names(nodes: Sequence[ast.AST]) -> list[str]:
    """The scalar names that are assigned, once for each assignment."""
    return [
        node.id
        for root in nodes
        for node in ast.walk(root)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]


def read_names(nodes: Sequence[ast.AST]) -> set[str]:
    """The names that are read (of tensors too)."""
    found = {n.id for root in nodes for n in ast.walk(root) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    for root in nodes:
        for node in ast.walk(root):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
    return found


def index_entries(node: ast.Subscript) -> list[ast.expr]:
    """The index expressions of a subscript."""
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def index_names(node: ast.Subscript) -> list[str] | None:
    """The indices when all of them are plain names, else None."""
    entries = index_entries(node)
    names = [e.id for e in entries if isinstance(e, ast.Name)]
    return names if len(names) == len(entries) else None


def tensor_name(program: Program, node: ast.Subscript) -> str:
    """The tensor behind a subscript, a staged name resolved."""
    name = node.value.id if isinstance(node.value, ast.Name) else ""
    return program.staged.get(name, (name, None))[0]


def is_independent(program: Program, variable: str, nodes: Sequence[ast.AST]) -> bool:
    """Whether iterations over `variable` touch disjoint elements of every tensor that `nodes` store to.

    That holds when one index of all accesses to such a tensor is the variable itself.
    """
    stored = {tensor_name(program, s) for s in subscripts(nodes, stored=True)}
    if not stored:
        return False
    for tensor in stored:
        accesses = [s for s in subscripts(nodes) if tensor_name(program, s) == tensor]
        positions = set(range(len(index_entries(accesses[0]))))
        for access in accesses:
            entries = index_entries(access)
            positions = {
                p
                for p in positions
                if p < len(entries) and isinstance(entry := entries[p], ast.Name) and entry.id == variable
            }
        if not positions:
            return False
    return True


def scalars_are_private(nodes: Sequence[ast.stmt]) -> bool:
    """Whether every scalar is assigned in the iteration before it is read there."""
    return not set(assigned_names(nodes)) & flow_of(nodes).exposed.keys()


def find_nest(program: Program, node: ast.For) -> Nest | None:
    """The longest run of perfectly nested independent loops from `node` on; None when the first is not one."""
    loops: list[Loop] = []
    body: list[ast.stmt] = [node]
    while len(body) == 1 and isinstance(body[0], ast.For):
        inner = body[0]
        found = read_loops(program, inner)
        if not all(_is_static(program, loop) and is_independent(program, loop.name, inner.body) for loop in found):
            break
        loops.extend(found)
        body = inner.body
    if not scalars_are_private(body):
        return None
    return Nest(tuple(loops), tuple(body), node) if loops else None


def one_point(program: Program, statements: Sequence[ast.stmt]) -> Nest:
    """Statements as the body of a loop that runs once."""
    name = "once"
    while name in program.scalar_names | program.size_names:
        name += "_"
    first = statements[0]
    count = ast.copy_location(ast.Constant(1), first)
    target = ast.copy_location(ast.Name(name, ast.Store()), first)
    node = ast.copy_location(ast.For(target, count, list(statements), []), first)
    return Nest((Loop(name, None, count, None, None, node),), tuple(statements), node)


def _is_plain(loop: Loop) -> bool:
    return loop.start is None and loop.step is None


def _is_static(program: Program, loop: Loop) -> bool:
    """Whether a loop runs from 0 to something that is known before the kernel runs."""
    if loop.block_dim is not None:
        return True
    return _is_plain(loop) and not program.scalar_names & read_names([loop.stop]) and not tensor_reads(loop.stop)


def single_loop(program: Program, statement: ast.stmt) -> Loop | None:
    """The loop of a `for` over range(n), None for anything else."""
    if not isinstance(statement, ast.For):
        return None
    loops = read_loops(program, statement)
    return loops[0] if len(loops) == 1 and _is_plain(loops[0]) and loops[0].block_dim is None else None


def match_contraction(program: Program, statement: ast.stmt) -> ContractionLoop | None:
    """`for k in range(K): acc += x[..k..] * y[..k..]`, one or more products, else None."""
    loop = single_loop(program, statement)
    if loop is None:
        return None
    products = []
    for inner in loop.node.body:
        update = _match_update(inner)
        if update is None or update.op != "sum":
            return None
        value = update.value
        if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Mult):
            return None
        left, right = _operand(program, value.left), _operand(program, value.right)
        if left is None or right is None:
            return None
        products.append(Product(update.accumulator, left, right, inner))
    return ContractionLoop(loop, tuple(products)) if products else None


def _operand(program: Program, node: ast.expr) -> Operand | None:
    if isinstance(node, ast.Subscript):
        return Operand(node, None)
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        element, inner = program.resolve_dtype(node.func), node.args[0]
        if element is not None and element.is_float and element.bits >= 32 and isinstance(inner, ast.Subscript):
            return Operand(inner, element)
    return None


def match_reduction(program: Program, statement: ast.stmt, live: set[str]) -> ReductionLoop | None:
    """`for j in range(N): [locals]; acc op= value ...`, else None.  live: scalars that are read after the loop."""
    loop = single_loop(program, statement)
    if loop is None:
        return None
    definitions: list[ast.Assign] = []
    updates: list[Update] = []
    for inner in loop.node.body:
        update = _match_update(inner)
        masked = _match_masked(inner)
        if update is not None:
            updates.append(update)
        elif masked is not None:
            updates.extend(masked)
        elif isinstance(inner, ast.Assign) and _is_name(inner.targets):
            if updates:
                return None
            definitions.append(inner)
        else:
            return None
    accumulators = {u.accumulator for u in updates}
    local = assigned_names(definitions)
    reads = read_names([d.value for d in definitions]) | read_names([u.value for u in updates])
    if len(accumulators) != len(updates) or len(set(local)) != len(local) or not updates:
        return None
    if set(local) & (live | flow_of(loop.node.body).exposed.keys()):
        return None
    return None if accumulators & (reads | set(local)) else ReductionLoop(loop, tuple(definitions), tuple(updates))


def match_map(program: Program, statement: ast.stmt, live: set[str]) -> MapLoop | None:
    """`for j in range(N): [locals]; T[.., j, ..] = value`, else None.  live: scalars that are read after the loop."""
    loop = single_loop(program, statement)
    if loop is None or any(isinstance(n, (ast.For, ast.While)) for s in loop.node.body for n in ast.walk(s)):
        return None
    body = loop.node.body
    if set(assigned_names(body)) & live or not is_independent(program, loop.name, body):
        return None
    return MapLoop(loop, tuple(body)) if scalars_are_private(body) else None


def _is_name(targets: Sequence[ast.expr]) -> bool:
    return len(targets) == 1 and isinstance(targets[0], ast.Name)


def _match_update(statement: ast.stmt) -> Update | None:
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        if isinstance(statement.op, ast.Add):
            return Update(statement.target.id, "sum", statement.value, statement)
        return None
    if not isinstance(statement, ast.Assign) or not _is_name(statement.targets):
        return None
    target = statement.targets[0]
    assert isinstance(target, ast.Name)
    name, value = target.id, statement.value
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        operands, op = [value.left, value.right], "sum"
    elif call_name(value) in ("max", "min", "maximum", "minimum"):
        assert isinstance(value, ast.Call)
        operands, op = list(value.args), call_name(value)[:3]
    else:
        return None
    own = [o for o in operands if isinstance(o, ast.Name) and o.id == name]
    rest = [o for o in operands if not (isinstance(o, ast.Name) and o.id == name)]
    return Update(name, op, rest[0], statement) if len(own) == 1 and len(rest) == 1 else None


def rename(node: ast.expr, old: str, new: str) -> str:
    """The text of `node` with the name `old` read as `new`, for comparing expressions of two loops."""
    text = ast.dump(node)
    return text.replace(f"Name(id={old!r}, ", f"Name(id={new!r}, ")


def tensor_reads(node: ast.expr) -> bool:
    """Whether an expression reads an element of a tensor."""
    return any(True for _ in subscripts([node]))


def _match_masked(statement: ast.stmt) -> list[Update] | None:
    """`if c: acc += x` as `acc += x if c else 0`."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return None
    updates = []
    for inner in statement.body:
        update = _match_update(inner)
        if update is None or update.op != "sum":
            return None
        nothing = ast.copy_location(ast.Constant(0), inner)
        value = ast.copy_location(ast.IfExp(statement.test, update.value, nothing), inner)
        updates.append(Update(update.accumulator, "sum", value, inner))
    return updates


def lift_accumulation(program: Program, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """`for k: T[i] += x` as `t = T[i]; for k: t += x; T[i] = t` when `T[i]` does not depend on k."""
    result: list[ast.stmt] = []
    for statement in statements:
        if not isinstance(statement, ast.For):
            result.append(statement)
            continue
        lifted = _lift(program, statement)
        if lifted is None:
            body = lift_accumulation(program, statement.body)
            loop = ast.For(statement.target, statement.iter, body, statement.orelse, statement.type_comment)
            lifted = [ast.copy_location(loop, statement)]
        result.extend(lifted)
    return result


def _lift(program: Program, loop: ast.For) -> list[ast.stmt] | None:
    update = loop.body[0]
    if len(loop.body) != 1 or loop.orelse or not isinstance(update, ast.AugAssign):
        return None
    target = update.target
    if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
        return None
    if not isinstance(update.op, (ast.Add, ast.Sub, ast.Mult)) or not _rounds_alike(program, target, update.value):
        return None
    own = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    tensor = tensor_name(program, target)
    others = subscripts([update.value, *index_entries(target)])
    if own & read_names(index_entries(target)) or any(tensor_name(program, s) == tensor for s in others):
        return None
    name = f"{target.value.id}_sum"
    while name in program.scalar_names | program.size_names | set(program.staged):
        name += "_"
    before = ast.Assign([ast.Name(name, ast.Store())], ast.Subscript(target.value, target.slice, ast.Load()))
    inner = ast.AugAssign(ast.Name(name, ast.Store()), update.op, update.value)
    again = ast.For(loop.target, loop.iter, [ast.copy_location(inner, update)], [], None)
    after = ast.Assign([target], ast.Name(name, ast.Load()))
    result: list[ast.stmt] = []
    for statement, origin in ((before, update), (again, loop), (after, update)):
        ast.copy_location(statement, origin)
        for part in ast.walk(statement):
            if isinstance(part, (ast.expr, ast.stmt)) and not hasattr(part, "lineno"):
                ast.copy_location(part, origin)
        result.append(statement)
    return result


def _rounds_alike(program: Program, target: ast.Subscript, value: ast.expr) -> bool:
    """Whether adding up in a scalar ends as adding up in the tensor: not where each sum is cut to an integer."""
    elements = {p.name: p.dtype for p in program.parameters}
    element = elements.get(tensor_name(program, target))
    if element is None or element.is_float:
        return element is not None
    unknown = program.scalar_names - _index_names(program)

    def is_integer(node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript):
            found = elements.get(node.value.id) if isinstance(node.value, ast.Name) else None
            return found is not None and not found.is_float
        if isinstance(node, ast.Constant):
            return isinstance(node.value, int)
        if isinstance(node, ast.Name):
            return node.id not in unknown
        return not isinstance(node, (ast.Call, ast.Div, ast.Pow, ast.Attribute))

    return all(is_integer(node) for node in ast.walk(value))


def _index_names(program: Program) -> set[str]:
    """The indices of all loops."""
    loops = (node for s in program.body for node in ast.walk(s) if isinstance(node, ast.For))
    return {name for loop in loops for name in target_names(loop)}
