"""Matrix expressions folded into one matrix: sums, products, scalar multiples, small determinants."""

from __future__ import annotations

from rewards.verifiers.equivalence.answers import Answer, Scalar, Table
from rewards.verifiers.equivalence.cursor import ParseError
from rewards.verifiers.equivalence.nodes import Call, Matrix, Node, Op, neg, num, walk

Rows = tuple[tuple[Node, ...], ...]
_MAX_DETERMINANT = 3


def has_matrix(node: Node) -> bool:
    """True where a matrix stands anywhere in the tree."""
    return any(isinstance(part, Matrix) for part in walk(node))


def fold(node: Node) -> Answer:
    """The matrix, or the scalar, that an expression with matrices comes to; raises ParseError."""
    result = _fold(node)
    return Table(result.rows) if isinstance(result, Matrix) else Scalar(result)


def _fold(node: Node) -> Node:
    if not has_matrix(node) or isinstance(node, Matrix):
        return node
    match node:
        case Op(kind="add" | "mul", args=args):
            total = _fold(args[0])
            for arg in args[1:]:
                total = (_plus if node.kind == "add" else _times)(total, _fold(arg))
            return total
        case Op(kind="neg", args=(inner,)):
            return _times(num(-1), _fold(inner))
        case Op(kind="div", args=(top, bottom)) if not has_matrix(bottom):
            return _times(Op("div", (num(1), bottom)), _fold(top))
        case Call(name="det", args=(inner,)):
            return _determinant(_fold(inner))
        case _:
            raise ParseError("a matrix where none is read")


def _plus(left: Node, right: Node) -> Node:
    if not (isinstance(left, Matrix) and isinstance(right, Matrix)) or shape(left.rows) != shape(right.rows):
        raise ParseError("a sum of unlike shapes")
    pairs = zip(left.rows, right.rows, strict=True)
    return Matrix(tuple(tuple(Op("add", two) for two in zip(a, b, strict=True)) for a, b in pairs))


def _times(left: Node, right: Node) -> Node:
    if isinstance(left, Matrix) and isinstance(right, Matrix):
        if len(left.rows[0]) != len(right.rows):
            raise ParseError("a product of unlike shapes")
        columns = tuple(zip(*right.rows, strict=True))
        return Matrix(tuple(tuple(_dot(row, column) for column in columns) for row in left.rows))
    if isinstance(right, Matrix):
        left, right = right, left
    if isinstance(left, Matrix):
        return Matrix(tuple(tuple(Op("mul", (right, cell)) for cell in row) for row in left.rows))
    return Op("mul", (left, right))


def _dot(row: tuple[Node, ...], column: tuple[Node, ...]) -> Node:
    return Op("add", tuple(Op("mul", pair) for pair in zip(row, column, strict=True)))


def _determinant(node: Node) -> Node:
    if (
        not isinstance(node, Matrix)
        or len(node.rows) != len(node.rows[0])
        or len(node.rows) > _MAX_DETERMINANT
    ):
        raise ParseError("no determinant, or a large one")
    return _expand(node.rows)


def _expand(rows: Rows) -> Node:
    if len(rows) == 1:
        return rows[0][0]
    terms: list[Node] = []
    for at, cell in enumerate(rows[0]):
        minor = tuple(row[:at] + row[at + 1 :] for row in rows[1:])
        product = Op("mul", (cell, _expand(minor)))
        terms.append(neg(product) if at % 2 else product)
    return Op("add", tuple(terms))


def shape(rows: Rows) -> tuple[int, int]:
    """Rows and columns."""
    return len(rows), len(rows[0])
