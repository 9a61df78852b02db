"""A trained model with its preparation as one network of torch: from the cells of a table to probabilities.

It takes x, with one example in each row:

- a table whose columns are named: float32 (n, columns). A column of categories has the place of the category in
  the task, from 0; any other number is a category that is not known. NaN is a missing cell.
- images: uint8 (n, channels, height, width), or float32 in the same unit; signals, frames and tables without names
  of columns: float32 (n, ...), in the unit of the stored examples; tokens: int64 (n, length).

It returns float32 (n, outputs): probabilities of classes or labels, scores after the hinge loss, or values in
their unit. Where `fedstride predict` refuses an example (a number that is infinite, or missing in a task without
missing cells), its row is NaN.
"""

from __future__ import annotations

import torch
from torch import nn

from fedstride.tasks.forms.columns import Column, parsed
from fedstride.tasks.forms.preparation import prepared, statistics_of
from fedstride.tasks.inputs import Kind
from fedstride.tasks.missing import ERROR
from fedstride.tasks.spec import Spec

from .model import Model

PROCESSOR = torch.device("cpu")
BUFFERS = ("mean", "std", "fill", "target_mean", "target_std")
"""What `statistics_of` returns."""


def columns_of(spec: Spec) -> list[Column]:
    """The named columns of a table; none for other examples, and for a table that is an array."""
    return parsed(spec.reading.columns) if spec.inputs.kind is Kind.TABLE else []


def dtype_of(spec: Spec, *, floats: bool = False) -> torch.dtype:
    """The dtype of x. `floats`: of images too."""
    if spec.inputs.kind is Kind.TOKENS:
        return torch.int64
    is_bytes = spec.inputs.kind is Kind.IMAGE and spec.scale > 1 and not floats
    return torch.uint8 if is_bytes else torch.float32


def example(spec: Spec, count: int, *, floats: bool = False) -> torch.Tensor:
    """So many examples of zeros."""
    columns = columns_of(spec)
    shape = (len(columns),) if columns else spec.inputs.shape
    return torch.zeros(count, *shape, dtype=dtype_of(spec, floats=floats))


class WholeNetwork(nn.Module):
    """Preparation, network and probabilities of a model, in eval mode."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.network, self.spec, self.gives = model.network, model.spec, model.gives
        self.columns = columns_of(model.spec)
        for name, values in zip(BUFFERS, statistics_of(model.spec, PROCESSOR), strict=True):
            self.register_buffer(name, values.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The predictions."""
        stored = _stored(x, self.spec) if self.columns else x.clone()
        usable = self._usable(stored)
        mean, std, fill = (self.get_buffer(name) for name in BUFFERS[:3])
        outputs = self.network(prepared(stored, self.spec, mean, std, fill)).double()
        predictions = self._finished(outputs)
        return (predictions if usable is None else torch.where(usable, predictions, torch.nan)).float()

    def _usable(self, stored: torch.Tensor) -> torch.Tensor | None:
        """Which examples are allowed, (n, 1); None if all are."""
        if not stored.is_floating_point():
            return None
        values = stored.flatten(1)
        allowed = values.abs() < torch.inf
        allowed = allowed | (values.isnan() & torch.tensor(_may_be_missing(self.spec, values.shape[1])))
        return allowed.all(1, keepdim=True)

    def _finished(self, outputs: torch.Tensor) -> torch.Tensor:
        if self.gives == "values" and self.spec.target_mean:
            assert isinstance(self.target_mean, torch.Tensor) and isinstance(self.target_std, torch.Tensor)
            return outputs * self.target_std + self.target_mean
        if self.gives == "probabilities":
            return outputs.softmax(1) if self.spec.classes else outputs.sigmoid()
        return outputs


def _may_be_missing(spec: Spec, width: int) -> list[bool]:
    """Which of the stored numbers of an example may be missing."""
    reading = spec.reading
    if not reading.parsed:
        return [reading.may_be_missing] * width
    flags = [reading.rules[column.name].fill != ERROR for column in reading.parsed for _ in range(column.width)]
    return [*flags, *(False for _ in reading.indicators)]


def _stored(x: torch.Tensor, spec: Spec) -> torch.Tensor:
    """The stored form of a table: a number for a column of numbers, one for each category, NaN if it is none.

    The indicators of missing cells are at the end.
    """
    blocks, indicators = [], []
    for at, column in enumerate(spec.reading.parsed):
        cell = x[:, at : at + 1]
        if column.categories:
            chosen = cell == torch.arange(len(column.categories), dtype=x.dtype)
            cell = torch.where(chosen.any(1, keepdim=True), chosen.to(x.dtype), torch.nan)
        blocks.append(cell.clone())
        if spec.reading.rules[column.name].indicator:
            indicators.append(cell[:, :1].isnan().to(x.dtype))
    return torch.cat([*blocks, *indicators], 1)
