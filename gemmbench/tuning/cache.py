"""The rows of a tuner on disk: a saved run that one tuner at a time goes on with."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from gemmbench.facts.records import BusyError, Header, Row, RowKey, Run, RunFile, RunFileError


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
            raise RunFileError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
        self.rows: list[Row] = list(self._file.done)
        self._searched = {row.key: row for row in self.rows if not row.label}
        self.recalled = len(self._searched)

    def find(self, key: RowKey) -> Row | None:
        """The search's row of a case; None if it has not been measured."""
        return self._searched.get(key)

    def append(self, row: Row) -> None:
        """Add a row, and put it on the disk."""
        self._file.append(row)
        self.rows.append(row)
        if not row.label:
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
