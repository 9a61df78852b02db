"""Classes of which a client holds out too few examples, or trains on none: a line for the node's own log."""

from __future__ import annotations

from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.spec import Target

FEW = 5
"""Held-out examples of a class, below which a figure of that class says little."""

SHOWN = 5
"""Classes that a line names."""


def line(trained: Examples, held_out: Examples | None) -> str:
    """What to say of a client's classes; empty if nothing. Classes without any example do not count."""
    if held_out is None or trained.spec.target is not Target.CLASS:
        return ""
    kept, held = trained.class_counts(), held_out.class_counts()
    few = [at for at in range(len(kept)) if kept[at] + held[at] and (held[at] < FEW or not kept[at])]
    if not few:
        return ""
    names = trained.spec.names or [str(at) for at in range(len(kept))]
    shown = ", ".join(f"{names[at]} ({held[at]} of {kept[at] + held[at]})" for at in few[:SHOWN])
    return (
        f"few examples of a class are held out, or none is left for training: {shown}"
        f"{', ...' if len(few) > SHOWN else ''}; figures of these classes say little (holdout, split_seed)"
    )
