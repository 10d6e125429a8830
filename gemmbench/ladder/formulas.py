"""Formulas of kernel descriptions: texts such as ``BM // TM``, as functions of named values."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, lru_cache
from types import CodeType

from gemmbench.ladder.variant import Formula, ParameterError, Rule, Values, round_up
from gemmbench.model.units import ceil_div

FormulaText = int | str

MOST_VALUE = 2**31 - 1
_MOST_TEXT = 200
_FUNCTIONS: Mapping[str, Callable[[int, int], int]] = {
    "ceil_div": ceil_div,
    "round_up": round_up,
    "min": min,
    "max": max,
}
_SCOPE = {"__builtins__": {}, **_FUNCTIONS}
_NODES = (
    *(ast.Constant, ast.Name, ast.Load, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call),
    *(ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)


class _Known(dict[str, int]):
    """Values, and terms, which are computed when a formula names them."""

    def __init__(self, values: Values, terms: Mapping[str, Formula]) -> None:
        super().__init__(values)
        self._terms = terms

    def __missing__(self, name: str) -> int:
        return self._terms[name](self)


def published_formula(text: FormulaText, names: Collection[str], terms: Mapping[str, Formula]) -> Formula:
    """Compile a formula of a published kernel: Python, such as ``m if ta else k``, with `terms` by name.

    Raises `ValueError` if it names others than `names`. The function raises `ParameterError` if it divides by
    zero, and `NameError` if a value is not known yet.
    """
    source = str(text)
    code = _compile(source)
    _refuse_unknown(source, code.co_names, (*names, *_FUNCTIONS))
    return lambda values: _evaluate(source, code, _Known(values, terms) if terms else values)


@cache
def _compile(source: str) -> CodeType:
    return compile(source, "formula", "eval")


def formula(text: FormulaText, names: Collection[str], is_rule: bool = False) -> Formula:
    """Compile a formula such as ``BM // TM``, or a number, to a function of named values to an integer.

    With `is_rule` it must be a comparison. Raises `ValueError`, for the user, if it is not valid. The
    function raises `ParameterError` if it divides by zero or exceeds 32 bits.
    """
    source = str(text).strip()
    code, used = _compile_checked(source, is_rule)
    _refuse_unknown(source, used, names)

    def value(values: Values) -> int:
        if abs(result := _evaluate(source, code, values)) > MOST_VALUE:
            raise ParameterError(f"{source} exceeds 32-bit integers")
        return result

    return value


def _refuse_unknown(source: str, used: Iterable[str], names: Collection[str]) -> None:
    for name in used:
        if name not in names:
            known = ", ".join(names) or "no names"
            raise ValueError(f"{source!r} names {name}, which there is not (there are {known})")


def _evaluate(source: str, code: CodeType, values: Values) -> int:
    try:
        return int(eval(code, _SCOPE, values))  # of `_NODES` alone
    except ZeroDivisionError:
        raise ParameterError(f"{source} divides by zero") from None


def holds(*rules: Formula) -> Rule:
    """A function that returns whether each rule is true, or not known yet; false if one divides by zero."""

    def is_met(rule: Formula, values: Values) -> bool:
        try:
            return bool(rule(values))
        except NameError:  # of a parameter that a problem has yet to choose
            return True
        except ParameterError:  # it divides by zero
            return False

    return lambda values: all(is_met(rule, values) for rule in rules)


@lru_cache(maxsize=1024)
def _compile_checked(source: str, is_rule: bool) -> tuple[CodeType, tuple[str, ...]]:
    """The code of a formula, and the names that it uses."""
    if len(source) > _MOST_TEXT:
        raise ValueError(f"a formula has {_MOST_TEXT} characters at most, not {len(source)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is refused below, such as 1and 2
            tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{source!r} is no formula") from None
    if isinstance(tree, ast.Compare) != is_rule:
        what = "must compare, as BM % TM == 0 does" if is_rule else "must be a number, without a comparison"
        raise ValueError(f"{source!r} is not the right kind of formula: it {what}")
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    functions = [call.func for call in calls]
    if (
        any(not isinstance(node, _NODES) for node in nodes)
        or any(type(node.value) is not int for node in nodes if isinstance(node, ast.Constant))
        or any(isinstance(node, ast.Compare) and node is not tree for node in nodes)
        or any(len(call.args) != 2 or call.keywords for call in calls)
        or any(not isinstance(each, ast.Name) or each.id not in _FUNCTIONS for each in functions)
    ):
        raise ValueError(
            f"{source!r} has more than whole numbers, names, + - * // %, ceil_div(a, b), round_up(a, b), "
            "min(a, b) and max(a, b)"
        )
    used = (node.id for node in nodes if isinstance(node, ast.Name) and node not in functions)
    return compile(ast.Expression(tree), "formula", "eval"), tuple(dict.fromkeys(used))
