"""The rows of a tuner on disk: a saved run that one tuner at a time goes on with."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from gemmbench.facts.records import (
    BusyError,
    Header,
    Problem,
    Row,
    RowKey,
    Run,
    RunFile,
    RunFileError,
    Status,
)
from gemmbench.facts.text import reason_of
from gemmbench.facts.tuning import TRIAL

_PASSING: tuple[Status, ...] = ("skipped", "crashed", "timed-out")  # what may be otherwise in another call


class Cache:
    """A tuner's file, locked against other tuners until it is closed or its process is gone.

    Attributes:
        path: of the file.
        rows: all that it holds, in the order of measuring.

    Raises:
        RunFileError: another tuner has it, it is of another kernel, device or problem, or cannot be written.
    """

    def __init__(self, path: Path, header: Header, fresh: bool = False) -> None:
        self.path = path
        self._header = header
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = RunFile.create(path, header, force=True) if fresh else RunFile.resume(path, header)
        except BusyError:
            raise RunFileError(
                f"another tuner is at work on {path}; wait for it, or give --cache another file"
            ) from None
        except OSError as error:
            raise RunFileError(f"cannot write {path}: {reason_of(error)}") from None
        self.rows: list[Row] = []
        self._searched: dict[RowKey, Row] = {}
        self._timed: set[Problem | None] = set()  # where the shipped preset has a time
        for row in self._file.done:
            self._know(row)
        self.recalled = len(self._searched)

    def find(self, key: RowKey) -> Row | None:
        """The search's row of a case; None if it is to be measured."""
        return self._searched.get(key)

    def append(self, row: Row) -> None:
        """Add a row, and put it on the disk."""
        self._file.append(row)
        self._know(row)

    def _know(self, row: Row) -> None:
        """Take a row in, and remember it if another call would find the same.

        What was skipped is far slower than the shipped preset where that has a time; elsewhere it wants a
        larger budget. The shipped preset, which all is held against, is worth another try.
        """
        self.rows.append(row)
        if row.phase != TRIAL:
            return
        if row.parameters == self.rows[0].parameters:  # the first attempt is always the shipped preset
            if row.status == "ok":
                self._timed.add(row.problem)
            lasts = row.status not in _PASSING
        else:
            lasts = row.status != "skipped" or row.problem in self._timed
        if lasts:
            self._searched[row.key] = row

    def run(self) -> Run:
        """What there is so far."""
        return Run(self._header, tuple(self.rows), str(self.path))

    def close(self) -> None:
        """Close the file, and let other tuners have it."""
        self._file.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
