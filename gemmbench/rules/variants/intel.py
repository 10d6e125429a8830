"""Ours for Intel's GPUs: what a sub-group can do there that OpenCL has no other word for."""

from __future__ import annotations

from gemmbench.facts.records import DeviceFacts
from gemmbench.rules.variants.model import OURS, Constraint, Parameter, Variant
from gemmbench.rules.variants.pieces import multiply, unsupported_type

_SUBGROUPS = "cl_intel_subgroups"


def _lacks(device: DeviceFacts, dtype: str) -> str:
    if device.family.endswith("-pocl") and _SUBGROUPS in device.extensions:
        return f"PoCL lists {_SUBGROUPS}, and does not link its functions"
    return unsupported_type(device, dtype)


INTEL_BLOCK = Variant(
    name="intel-block",
    family=OURS,
    likely={"gpu": 5},
    idea="for Intel's GPUs, and untested on one: sub-group block reads and shuffles",
    source="gemmbench; Intel's extension cl_intel_subgroups describes the block reads",
    passes=(
        multiply(
            "22_intel_block.cl",
            "intel_block",
            lambda v: (-(-v["n"] // (v["LANES"] * v["TN"])) * v["LANES"], -(-v["m"] // v["TM"])),
            lambda v: (v["LANES"], v["GY"]),
        ),
    ),
    parameters={
        "LANES": Parameter("work-items of a sub-group; the device must have sub-groups of that", (8, 16, 32)),
        "GY": Parameter("sub-groups in a work-group, one below the other", (1, 2, 4, 8)),
        "TM": Parameter("rows of C of a sub-group", (4, 8, 16)),
        "TN": Parameter("columns of C of a lane: elements of a block read", (2, 4, 8)),
    },
    presets={
        "default": {"LANES": 16, "GY": 4, "TM": 8, "TN": 4},
        "default:double": {"TN": 2},
        "cpu-intel": {"LANES": 8, "TN": 2},
        "cpu-intel:double": {"TM": 4},
    },
    constraints=(
        Constraint(lambda p: p["TN"] in (2, 4, 8), "TN is 2, 4 or 8: block reads come in these widths"),
    ),
    extensions=lambda _: (_SUBGROUPS, "cl_intel_required_subgroup_size"),
    type_extensions={"double": ("cl_intel_subgroups_long",), "half": ("cl_intel_subgroups_short",)},
    lacks=_lacks,
    sub_group=lambda p: p["LANES"],
    edge=lambda p: max(p["LANES"] * p["TN"], p["GY"] * p["TM"]),
)

VARIANTS = (INTEL_BLOCK,)
