"""Runs in a SQLite database: tables ``runs``, ``rows`` and ``samples``."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, fields
from pathlib import Path

import msgspec

from gemmbench import UsageError
from gemmbench.exports.records import COLUMNS, to_flat
from gemmbench.model.device import HostFacts
from gemmbench.model.row import Row
from gemmbench.model.run_file import SCHEMA_VERSION, Run, encode
from gemmbench.model.units import clean, reason_of, spelt_out

APPLICATION = 0x67656D6D  # "gemm" in the file's header, by which `file` and this module know it
_TYPES = {str: "TEXT", int: "INTEGER", float: "REAL", bool: "BOOLEAN"}
_KINDS = {kind.__name__: f"{name} NOT NULL" for kind, name in _TYPES.items()}

_RUNS = {
    "digest": "TEXT NOT NULL UNIQUE",  # see `digest`: the same run is stored once
    "path": "TEXT NOT NULL",
    "gemmbench": "TEXT NOT NULL",
    "schema_version": "INTEGER NOT NULL",
    "command": "TEXT NOT NULL",
    "started_utc": "TEXT NOT NULL",
    "view": "TEXT NOT NULL",
    **{f"host_{field.name}": _KINDS[str(field.type)] for field in fields(HostFacts)},
    "devices": "TEXT NOT NULL",  # JSON, as in the saved run
    "policy": "TEXT NOT NULL",  # JSON
}
_OF_RUN = "INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE"
_ROWS = {
    "run_id": _OF_RUN,
    "position": "INTEGER NOT NULL",  # within the run, from 0
    **{column.name: _TYPES[column.type] for column in COLUMNS},
}
_SAMPLES = {
    "run_id": _OF_RUN,
    "position": "INTEGER NOT NULL",  # of the row
    "part": "TEXT NOT NULL",  # row, burst or former: see `model.row.Row`
    "scope": "TEXT NOT NULL",  # kernel, device, host
    "batch": "INTEGER NOT NULL",  # from 0
    "problems": "INTEGER NOT NULL",  # in the batch
    "seconds": "REAL NOT NULL",  # for one problem
}
_TABLES = {
    "runs": ({"id": "INTEGER PRIMARY KEY", **_RUNS}, ""),
    "rows": (_ROWS, "PRIMARY KEY (run_id, position)"),
    "samples": (_SAMPLES, "PRIMARY KEY (run_id, position, part, scope, batch)"),
}


def digest(run: Run) -> str:
    """What tells runs apart: the header, and the first samples of runs that began in the same second."""
    first = next((row.samples for row in run.rows if row.samples), run.rows[:1])
    return hashlib.sha256(encode(run.header) + msgspec.json.encode(first)).hexdigest()


def add(runs: Sequence[Run], path: Path) -> None:
    """Put runs into a database, which is made if it is not there; a run that it has is replaced.

    All of them or none, with a `UsageError`: the file is something else, of another version, or not writable.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("PRAGMA foreign_keys = ON")
            database.execute("BEGIN IMMEDIATE")
            _prepare(database, path)
            for run in runs:
                _add(database, run)
            database.execute("COMMIT")
    except sqlite3.Error as error:
        other = "not a database" in str(error)
        reason = "it is something else, and is left as it is" if other else reason_of(error)
        raise UsageError(f"cannot write {path} as a database: {reason}") from None
    except OverflowError:
        raise UsageError(f"cannot write {path}: a whole number is too large for SQLite") from None


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    """The tables, where the file is new; `UsageError` if it is another program's, or has other columns."""
    own = database.execute("PRAGMA application_id").fetchone()[0] == APPLICATION
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if tables and not own:
        raise UsageError(f"{path} is a database of another program, and is left as it is")
    for name, (columns, key) in _TABLES.items():
        there = [row[1] for row in database.execute(f'PRAGMA table_info("{name}")')]
        if own and there != list(columns):
            raise UsageError(
                f"{path} was made by another version of gemmbench, whose table {name} has other columns; "
                "choose another file"
            )
        if not own:
            lines = [f'"{column}" {kind}' for column, kind in columns.items()] + ([key] if key else [])
            database.execute(f'CREATE TABLE "{name}" ({", ".join(lines)})')
    database.execute(f"PRAGMA application_id = {APPLICATION}")
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _add(database: sqlite3.Connection, run: Run) -> None:
    header = run.header
    values = {
        "digest": digest(run),
        "path": clean(spelt_out(run.path)),
        "gemmbench": header.gemmbench,
        "schema_version": header.schema_version,
        "command": clean(" ".join(header.command)),
        "started_utc": header.started_utc,
        "view": header.view,
        **{f"host_{name}": value for name, value in asdict(header.host).items()},
        "devices": msgspec.json.encode(header.devices).decode(),
        "policy": msgspec.json.encode(header.policy).decode(),
    }
    database.execute("DELETE FROM runs WHERE digest = ?", (values["digest"],))
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    made = database.execute(f"INSERT INTO runs ({names}) VALUES ({marks})", tuple(values.values()))
    number = made.lastrowid
    rows = ((number, index, *record.values()) for index, record in enumerate(to_flat(run)))
    samples = ((number, index, *sample) for index, row in enumerate(run.rows) for sample in _samples(row))
    database.executemany(f"INSERT INTO rows VALUES ({', '.join('?' * len(_ROWS))})", rows)
    database.executemany(f"INSERT INTO samples VALUES ({', '.join('?' * len(_SAMPLES))})", samples)


def _samples(row: Row) -> Iterator[tuple[str, str, int, int, float]]:
    parts = (("row", row.samples), ("burst", row.burst), ("former", row.former.samples if row.former else {}))
    for part, scopes in parts:
        for scope, samples in scopes.items():
            for batch, seconds in enumerate(samples.seconds):
                yield part, scope, batch, samples.batch, seconds
