"""The mini-batches of several clients as one tensor a step: shorter ones are filled up, and a mask says where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from client_app.from_message import Work
from fedstride.tasks.forms.augmentation import changed, drawn
from fedstride.tasks.goals import Loss

from . import examples_on_gpu
from .random_draws import Number


@dataclass(frozen=True)
class Batch:
    """One mini-batch of each client."""

    x: torch.Tensor  # prepared, (clients, longest, ...)
    y: torch.Tensor  # (clients, longest, ...)
    mask: torch.Tensor  # bool (clients, longest): the client's own examples; the others repeat its first one
    counts: Sequence[int]  # of each client's own examples

    @property
    def longest(self) -> int:
        """The number of examples of the longest mini-batch."""
        return self.y.shape[1]

    @property
    def filled(self) -> bool:
        """Whether a mini-batch is filled up."""
        return min(self.counts) < self.longest


class ChosenExamples(NamedTuple):
    """Which stored examples a step takes."""

    rows: torch.Tensor  # int64 (clients * longest,)
    mask: torch.Tensor  # see `Batch`
    counts: Sequence[int]  # see `Batch`

    @property
    def is_filled(self) -> bool:
        """See `Batch`."""
        return min(self.counts) < max(self.counts)


def mean_losses(loss: Loss, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
    """(clients,): the mean of `loss` over each client's own examples. `outputs`: (clients, longest, ...)."""
    losses = loss(outputs.flatten(0, 1), batch.y.flatten(0, 1), reduction="none").view(batch.mask.shape)
    return torch.where(batch.mask, losses, 0.0).sum(1) / batch.mask.sum(1)


class Batches:
    """The mini-batches of several clients. Their stored examples are copied to the device once, or stay there.

    `positions`: for each client the positions of the examples of each step; clients with more steps come first.
    The clients have the same spec, device and augmentation.
    """

    def __init__(self, jobs: Sequence[Work], positions: Sequence[Sequence[np.ndarray]]) -> None:
        self._jobs, self._examples = jobs, jobs[0].examples
        device = self._examples.device
        self._x, self._y, rows, self.stay = _stored(jobs, positions, device)
        # Copied once for all steps: each copy to a GPU waits for it.
        columns = [[of_client[n] for of_client in rows if len(of_client) > n] for n in range(max(map(len, rows)))]
        self._counts = [[len(batch) for batch in column] for column in columns]
        masks = [_own(counts) for counts in self._counts]
        filled = [_filled_up(column, mask) for column, mask in zip(columns, masks, strict=True)]
        sizes = [array.size for array in filled]
        flat = (np.concatenate([array.reshape(-1) for array in part]) for part in (filled, masks))
        self._chosen, self._masks = (torch.split(torch.from_numpy(array).to(device), sizes) for array in flat)

    @property
    def stored(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The stored examples on the device, from which the mini-batches are taken."""
        return self._x, self._y

    @property
    def are_changed(self) -> bool:
        """Whether the processor draws random changes for each step."""
        return bool(self._jobs[0].augmentation)

    def chosen(self, number: int) -> ChosenExamples:
        """What step `number`, from 0, takes for the clients that have this step: the first ones."""
        counts = self._counts[number]
        return ChosenExamples(self._chosen[number], self._masks[number].view(len(counts), max(counts)), counts)

    def taken(self, chosen: ChosenExamples, number: Number) -> Batch:
        """The mini-batches of step `number`."""
        shape = chosen.mask.shape
        x, y = self._examples.prepared(self._x[chosen.rows], self._y[chosen.rows])
        x = self._changed(x, number, chosen.counts, shape[1])
        x, y = (tensor.view(*shape, *tensor.shape[1:]) for tensor in (x, y))
        return Batch(x, y, chosen.mask, chosen.counts)

    def _changed(self, x: torch.Tensor, number: Number, counts: Sequence[int], longest: int) -> torch.Tensor:
        """The augmented images, with the draws of each client. `number` must be an int if there are any."""
        names = self._jobs[0].augmentation
        if not names:
            return x
        step = int(number)
        of_clients = [
            drawn(count, names, seed=job.seed, server_round=job.server_round, client=job.client_id, step=step)
            for job, count in zip(self._jobs, counts, strict=False)
        ]
        columns = [[_filled(draw, longest) for draw in draws] for draws in zip(*of_clients, strict=True)]
        return changed(x, names, [np.concatenate(column, axis=-1) for column in columns])


Rows = list[list[np.ndarray]]
"""For each client and step, which of the stored examples on the device it uses."""


def _stored(
    jobs: Sequence[Work], positions: Sequence[Sequence[np.ndarray]], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, Rows, bool]:
    """x and y on the device, the rows, and whether they stay there: all examples, else those that are used."""
    first = jobs[0].examples
    if all(job.examples.x is first.x and job.examples.y is first.y for job in jobs):
        copies = examples_on_gpu.copies((first.x, first.y), device)
        if copies is not None:
            members = [job.examples.members for job in jobs]
            rows = [[indices[step] for step in steps] for indices, steps in zip(members, positions, strict=True)]
            return copies[0], copies[1], rows, True
    return *_gathered(jobs, positions, device), False


def _gathered(
    jobs: Sequence[Work], positions: Sequence[Sequence[np.ndarray]], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, Rows]:
    """Each client's examples that it uses, once, one client after the other."""
    rows, start = Rows(), 0
    x, y = list[np.ndarray](), list[np.ndarray]()
    for job, of_client in zip(jobs, positions, strict=True):
        used, where = np.unique(np.concatenate(list(of_client)), return_inverse=True)
        ends = np.cumsum([len(step) for step in of_client])[:-1]
        rows.append(np.split(where + start, ends))
        members = job.examples.members[used]
        x.append(job.examples.x[members])
        y.append(job.examples.y[members])
        start += len(used)
    stored_x, stored_y = (torch.from_numpy(np.concatenate(arrays)).to(device) for arrays in (x, y))
    return stored_x, stored_y, rows


def _own(counts: Sequence[int]) -> np.ndarray:
    """bool (clients, longest): which examples of the filled batches are a client's own."""
    mask: np.ndarray = np.arange(max(counts)) < np.array(counts)[:, None]
    return mask


def _filled_up(rows: Sequence[np.ndarray], mask: np.ndarray) -> np.ndarray:
    """The rows of each client, (clients, longest): shorter ones repeat their first. `mask`: see `_own`."""
    filled = np.repeat(np.array([of_client[0] for of_client in rows])[:, None], mask.shape[1], axis=1)
    filled[mask] = np.concatenate(rows)
    return filled


def _filled(draw: np.ndarray, longest: int) -> np.ndarray:
    """The draws of a client, and zeros for the examples that fill its batch."""
    return np.pad(draw, [(0, 0)] * (draw.ndim - 1) + [(0, longest - draw.shape[-1])])
