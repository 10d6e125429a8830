"""The options of ``report``."""

# ruff: noqa: RUF009  `option` is `dataclasses.field` with a `Spec`

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from gemmbench.options.declare import FILE, PAGE, Options, check_report_path, flag, option, threshold_of
from gemmbench.regress.baseline import Rules


@dataclass(frozen=True, kw_only=True)
class Report(Options):
    """The options of ``report``."""

    command: ClassVar[str] = "report"

    out: Path | None = option(
        "The page; it is replaced.  [default: the first file's or folder's name, .html]",
        FILE,
        flags=("-o", "--out"),
        metavar=PAGE,
    )
    title: str | None = option("What the page is called.  [default: the devices]", metavar="TEXT")
    charts: str = option(
        "all, none, or kinds with commas (gemmbench plot --kind list).",
        default="all",
        metavar="KINDS",
    )
    threshold: str | None = option(
        "From which change on a row is slower, and a node an outlier: '5 %' or 0.05.  [default: 5 %]",
        metavar="PERCENT",
    )
    fleet: bool = flag(
        "Runs of the same cases are of several nodes, not of one machine over time: name the outliers."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_report_path(self.out, "--out")
        _ = self.rules

    @cached_property
    def rules(self) -> Rules:
        return Rules(threshold_of(self.threshold))
