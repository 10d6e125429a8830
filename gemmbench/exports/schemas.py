"""JSON Schemas of the saved run and of ``show --format json``, made from the types that read and write them.

They allow further fields: a later version may add some, and says so by a new number only if a reader cannot
do without them. See `model.row` for the history.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gemmbench import __version__
from gemmbench.exports.records import COLUMNS, Column
from gemmbench.model.row import Row
from gemmbench.model.run_file import SCHEMA_VERSION, Header

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NAMES = ("header", "row", "records")
"""Line 1 of a saved run, every further line of it, and what ``show --format json`` prints."""

# Only where they are known.
_OPTIONAL = (
    "slowdown",
    "slowdown_low",
    "slowdown_high",
    "net_s",
    "net_share",
    "own",
    "protocols",
    "sustained",
    "took_s",
    "burst_gflops",
    "burst_gflops_low",
    "burst_gflops_high",
)
_FLAT_ONLY = (
    "alpha", "beta", "state", "clock_mhz", "limits", "other_cores", "steal_cores", "switches", "verdict",
    "benchmark",
)  # fmt: skip


def schema(name: str) -> dict[str, Any]:
    """One of `NAMES` as JSON Schema, draft 2020-12; it has a version, that of the saved run.

    Rows and headers of schema 1 lack fields of schema 2 that have a default, and hold it, too.
    """
    made = _records() if name == "records" else msgspec.json.schema(Header if name == "header" else Row)
    if name == "header":
        made["$defs"]["Header"]["properties"]["schema_version"] |= {"minimum": 1, "maximum": SCHEMA_VERSION}
    return {
        "$schema": DIALECT,
        "$id": f"urn:gemmbench:schema:{name}:{SCHEMA_VERSION}",
        "$comment": f"of gemmbench {__version__}",
        **made,
    }


def to_text(name: str) -> str:
    """The same as indented text."""
    return json.dumps(schema(name), indent=2, allow_nan=False) + "\n"


def _records() -> dict[str, Any]:
    """An array of rows without their matrices, with the derived fields beside; null where unknown."""
    made = msgspec.json.schema(Row)
    definitions = made["$defs"]
    row = definitions.pop("Row")
    row["properties"].pop("matrices")
    stored = row["properties"]
    derived = {each.name: _property(each) for each in COLUMNS if each.name not in (*stored, *_FLAT_ONLY)}
    derived["disturbed"] = {"type": "array", "items": {"type": "string"}}
    figures = definitions["Check"]["properties"]["figures"]
    figures["additionalProperties"] = {"anyOf": [figures["additionalProperties"], {"type": "null"}]}
    definitions["Record"] = {
        "title": "Record",
        "description": "One result with its rates and intervals, or why there is none.",
        "type": "object",
        "properties": {**stored, **derived},
        "required": [name for name in (*stored, *derived) if name not in _OPTIONAL],
    }
    return {"type": "array", "items": {"$ref": "#/$defs/Record"}, "$defs": definitions}


def _property(column: Column) -> dict[str, Any]:
    kind = {str: "string", int: "integer", float: "number", bool: "boolean"}[column.type]
    return {"description": column.holds, "type": [kind, "null"]}
