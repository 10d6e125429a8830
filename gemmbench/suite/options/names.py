"""What options name (kernels, types, sizes, files): looked up and checked."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from gemmbench import UsageError, ladder
from gemmbench.ladder.own import own_kernel
from gemmbench.ladder.variant import Variant
from gemmbench.model.case import KERNEL
from gemmbench.model.device import DeviceFacts, broad_type
from gemmbench.model.problem import LONGEST
from gemmbench.model.units import reason_of

_ALIASES = {"int8": "char"}  # other names of data types
_MEANT = {  # what other programs call them
    "float": ("f32", "fp32", "float32", "single"),
    "double": ("f64", "fp64", "float64"),
    "half": ("f16", "fp16", "float16"),
    "bfloat16": ("bf16", "bfloat"),
    "char": ("i8", "s8"),
    "int": ("i32", "int32"),
    "e4m3": ("fp8", "f8", "float8", "fp8e4m3"),
    "e5m2": ("fp8e5m2",),
}
MOST_COMBINATIONS = 100  # of a kernel's parameters, that --param may ask for
_OWN = "own"  # the kernels of --kernel-file
DEFAULT_GROUP = "default"
_MEMBERS = {
    DEFAULT_GROUP: tuple(dict.fromkeys(name for several in ladder.DEFAULT.values() for name in several)),
    "all": ladder.LADDER,
    "ladder": ladder.PUBLISHED,
    "best": ladder.BEST,
}
_NONE = "none"  # of libraries
_RESERVED = (*_MEMBERS, _OWN, _NONE)  # what --kernel and --baseline take beside names


def choose_dtypes(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Data types from a comma-separated list; `UsageError` if one is unknown."""
    return choose_names(",".join(_ALIASES.get(word, word) for word in split_names(text)), known, "data type")


def own_kernels(files: Sequence[Path]) -> tuple[Variant, ...]:
    """Load the user's kernels; `UsageError` if one cannot be used or its name is taken."""
    made: list[Variant] = []
    for file in files:
        variant = own_kernel(file)
        what = "means something else to --kernel or --baseline" if variant.name in _RESERVED else ""
        if variant.name in (*ladder.ORDER, *(each.name for each in made)):
            what = "is another kernel's name"
        if what:
            hint = f'give yours one in its description (name = "my-{variant.name}")'
            raise UsageError(f"{file}: {variant.name} {what}; {hint}")
        made.append(variant)
    return tuple(made)


def choose_kernels(
    text: str, baseline: str = "none", user_kernels: Sequence[Variant] = (), add_unnamed: bool = True
) -> tuple[Variant, ...]:
    """The kernels of a list (and, with `add_unnamed`, the user's) and the libraries of `baseline`."""
    groups = _groups(user_kernels)
    names = {name for word in _kernel_words(text, user_kernels) for name in groups.get(word, (word,))}
    by_name = {each.name: each for each in user_kernels}
    if add_unnamed and names.isdisjoint(by_name):
        names.update(by_name)
    names.update(choose_baselines(baseline))
    return tuple({**ladder.BY_NAME, **by_name}[name] for name in ladder.order(by_name) if name in names)


def _groups(user_kernels: Sequence[Variant]) -> Mapping[str, tuple[str, ...]]:
    return {**_MEMBERS, _OWN: tuple(each.name for each in user_kernels)} if user_kernels else _MEMBERS


def of_groups(text: str, baseline: str, user_kernels: Sequence[Variant], device: DeviceFacts) -> set[str]:
    """The names that groups such as "default" select on this device."""
    groups = {**_groups(user_kernels), DEFAULT_GROUP: ladder.DEFAULT[broad_type(device)]}
    libraries = {"all": ladder.BASELINES, DEFAULT_GROUP: ladder.default_libraries(device)}
    return {
        name
        for words, members in (
            (_kernel_words(text, user_kernels), groups),
            (split_names(baseline), libraries),
        )
        for word in words
        for name in members.get(word, ())
    }


def named_kernels(text: str, user_kernels: Sequence[Variant] = ()) -> tuple[str, ...]:
    """The kernels named in a list, and the selected kernels of the user."""
    chosen = choose_kernels(text, user_kernels=user_kernels)
    words = (*_kernel_words(text, user_kernels), *(each.name for each in chosen if each.own))
    return tuple(dict.fromkeys(word for word in words if word not in _groups(user_kernels)))


def choose_measured(text: str, measured: Sequence[str]) -> set[str]:
    """The `measured` kernels that a list of names and groups selects."""
    members = {word: {*_MEMBERS.get(word, (word,))} & {*measured} for word in split_names(text)}
    for word, chosen in (members or {repr(text): set[str]()}).items():
        if not chosen:
            raise UsageError(f"--kernel {word} was not measured; there are {', '.join(measured)}")
    return set().union(*members.values())


def choose_baselines(text: str) -> tuple[str, ...]:
    """The libraries in a comma-separated list; all and default are every one."""
    words = choose_names(text, BASELINE_NAMES, "baseline")
    if _NONE in words:
        if len(words) > 1:
            raise UsageError(f"--baseline {text}: none cannot be combined with other names")
        return ()
    return ladder.BASELINES if {"all", DEFAULT_GROUP} & {*words} else words


def _kernel_words(text: str, user_kernels: Sequence[Variant] = ()) -> tuple[str, ...]:
    known = (*ladder.order(each.name for each in user_kernels), *_groups(user_kernels))
    for word in split_names(text):
        if word == _OWN and not user_kernels:
            raise UsageError(f"--kernel {_OWN} means the kernels of --kernel-file, and there is none")
    return choose_names(text, known, "kernel")


def choose_params(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Parse NAME=VALUE[,VALUE...] texts into values by name."""
    chosen: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        words = [word.strip() for word in values.split(",")]
        if not equals or not all(map(str.isdecimal, words)):
            raise UsageError(
                f"--param takes NAME=VALUE with a whole number, or several with commas, not {text!r}"
            )
        numbers = _numbers(f"--param {name}", words)
        if (name := name.strip()) in chosen:
            both = dict.fromkeys([*map(str, chosen[name]), *words])
            raise UsageError(f"--param {name} is given twice: write --param {name}={','.join(both)}")
        chosen[name] = tuple(dict.fromkeys(numbers))
    return chosen


def check_grid(variants: Iterable[Variant], params: Mapping[str, Sequence[int]]) -> None:
    """`UsageError` if --param asks for too many combinations."""
    for variant in variants:
        count = math.prod(len(values) for name, values in params.items() if name in variant.parameters)
        if count > MOST_COMBINATIONS:
            raise UsageError(
                f"--param asks for {count} combinations of {variant.name}'s parameters, and a grid has at "
                f"most {MOST_COMBINATIONS}: gemmbench tune --kernel {variant.name} searches larger spaces"
            )


def listed_sizes(text: str) -> tuple[int, ...]:
    """The sizes in a comma-separated list, sorted."""
    words = split_names(text)
    sizes = _numbers("--sizes", words) if all(map(str.isdecimal, words)) else []
    if not all(sizes) or not sizes:
        raise UsageError(f"--sizes takes whole numbers of 1 or more with commas, not {text!r}")
    return tuple(sorted(set(sizes)))


def choose_sizes(
    text: str | None, low: int | None, high: int | None, usual: int, ends: str = ""
) -> tuple[int, ...]:
    """The sizes in a list, sorted; or `low`, `high` and the powers of two between them (options `ends`)."""
    if text is not None:
        sizes = listed_sizes(text)
        if (low, high) != (None, None):
            raise UsageError(f"use --sizes or {ends}, not both")
        return sizes
    high = usual if high is None else high
    low = min(64, high) if low is None else low
    if low > high:
        raise UsageError(f"the smallest size, {low}, is above the largest, {high}")
    powers = [1 << bit for bit in range(low.bit_length() - 1, high.bit_length()) if low < 1 << bit < high]
    return tuple(sorted({low, *powers, high}))


def _numbers(option: str, words: Sequence[str]) -> list[int]:
    for word in words:
        if len(word.lstrip("0")) > len(str(LONGEST)) or int(word) > LONGEST:
            raise UsageError(f"{option}: {too_large(word)}")
    return [int(word) for word in words]


def too_large(number: object) -> str:
    """A sentence on a number above `LONGEST`."""
    return f"{number} is above the maximum, {LONGEST}"


def split_names(text: str) -> list[str]:
    """Split a comma-separated list, without empty words."""
    return [word.strip() for word in text.split(",") if word.strip()]


def choose_names(text: str, known: Sequence[str], what: str) -> tuple[str, ...]:
    """The names in a comma-separated list, once each; `UsageError` for unknown ones."""
    words = split_names(text)
    if not words:
        raise UsageError(f"no {what} is given; {hint('', known)}")
    for word in words:
        if what == "kernel" and word not in known and word.endswith(KERNEL):
            raise UsageError(f"--kernel takes names, and {word} is a file: --kernel-file {word}")
        if word not in known:
            raise UsageError(f"unknown {what} {word!r}; {hint(word, known)}")
    return tuple(dict.fromkeys(words))


def hint(word: str, known: Collection[str]) -> str:
    """The name that was probably meant, else what there is."""
    close = [name for name, others in _MEANT.items() if name in known and word.lower() in others]
    if close := close or difflib.get_close_matches(word.lower(), known, 1):
        return f"did you mean {close[0]}?"
    return "gemmbench kernels lists them" if ladder.ORDER[0] in known else f"there are {', '.join(known)}"


def check_folder(option: str, path: Path) -> None:
    """`UsageError` if a file cannot be written there."""
    try:
        if not path.parent.is_dir():
            raise UsageError(f"{option} {path}: there is no folder {path.parent}")
        if path.is_dir():
            raise UsageError(f"{option} {path}: it is a folder")
        target = path if path.exists() else path.parent
    except OSError as error:  # a name too long, a folder that may not be entered
        raise UsageError(f"{option} {path}: {reason_of(error)}") from None
    if not os.access(target, os.W_OK):
        raise UsageError(f"{option} {path}: permission denied")


def check_overwriting(outputs: Sequence[tuple[str, Path]], inputs: Sequence[tuple[str, Path]]) -> None:
    """`UsageError` if an output is also an input or an earlier output. Pairs are of prefix and path."""
    for number, (option, path) in enumerate(outputs):
        if _is_special(path):
            continue
        for role, other in inputs:
            if _same_file(path, other):
                raise UsageError(f"{option} {path} would replace {role}{other}, which is read")
        for role, other in outputs[:number]:
            if _same_file(path, other):
                raise UsageError(f"{option} {path} would replace {role} {other}")


def kernel_inputs(files: Iterable[Path], option: str = "--kernel-file") -> list[tuple[str, Path]]:
    """Users' kernel files and their descriptions, for `check_overwriting`."""
    inputs = []
    for file in files:
        inputs += [(f"{option} ", file), (f"{option}'s ", file.parent / f"{file.stem}.toml")]
    return inputs


def _is_special(path: Path) -> bool:
    """Whether a path is there, and is no file: such as /dev/stdout."""
    try:
        return path.exists() and not path.is_file()
    except OSError:  # too long a name: `check_folder` says so
        return False


def _same_file(path: Path, other: Path) -> bool:
    """Whether two names are of one file, also by a link, or before it exists."""
    try:
        return path.samefile(other)
    except OSError:
        return os.path.realpath(path) == os.path.realpath(other)


KERNEL_NAMES = (*_MEMBERS, *ladder.ORDER)
BASELINE_NAMES = (*ladder.BASELINES, DEFAULT_GROUP, "all", _NONE)
