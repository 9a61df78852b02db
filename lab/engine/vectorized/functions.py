"""What torch's functions compute while several clients share a forward pass (`torch.func.vmap` over the clients).

Each client has a batch of its own. Shorter batches are filled up; `mask` (n,) says which examples of a client
are its own. Only functions that torch cannot map over clients, or that mix or draw examples, are replaced:

- `conv2d`, on a GPU: one product of matrices for each client, of patches of the images. Torch makes one grouped
  convolution of all, for which cuDNN launches some kernels for each client (docs/performance.md).
- `batch_norm`: each client's own statistics, over its own examples. With a single value per channel, which has
  no variance, the running statistics are used and stay (as `fedstride/tasks/networks/norms.py` does).
- `group_norm`: torch's, of values in the usual layout.
- `dropout` and dropout of channels: drawn for each client alone. On a processor its own generator draws, in the
  order of its own examples: these are the bits of training alone, except for values in an unusual order in memory
  (such as the output of attention). There, and on a GPU (`random_draws.py`), they are other bits of the same
  distribution.
- `scaled_dot_product_attention`: written out. Its dropout is drawn in the same way.
- `lstm`: written out over the steps of the sequence.

Networks call these functions through `torch.nn.functional` and `torch._VF`; they are replaced there during the
forward pass. A network that reaches another random function is refused by `vmap`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.nn import functional

from fedstride.processes.patches import replaced
from fedstride.tasks.forms.memory_layout import place_images

TRACKED = "num_batches_tracked"
MEAN = "running_mean"


class Draws(Protocol):
    """Draws dropout masks for the clients in one step."""

    def keep(self, like: torch.Tensor, shape: Sequence[int], p: float, *, images: bool) -> torch.Tensor:
        """0 with probability p, else 1 / (1 - p): (clients, *shape), with the dtype and device of `like`.

        The first of `shape` is the examples of the filled batch, or a multiple of them. `images`: values of
        images, whose layout in memory can decide the order of the draws. Raises ValueError if it cannot draw them.
        """
        ...


class GeneratorDraws:
    """Draws dropout masks for the clients, each from its own generator.

    `counts`: the number of each client's own examples in this batch; `longest`: that of the filled batches.
    """

    def __init__(self, generators: Sequence[torch.Generator], counts: Sequence[int], longest: int) -> None:
        self.generators, self.counts, self.longest = generators, counts, longest

    def keep(self, like: torch.Tensor, shape: Sequence[int], p: float, *, images: bool) -> torch.Tensor:
        """As `Draws` says. Raises ValueError if the examples are not the first axis."""
        rows, rest = divmod(shape[0], self.longest)
        if rest or not rows:
            raise ValueError("dropout is only stacked where the examples are the first axis")
        kept = torch.zeros((len(self.counts), *shape), dtype=like.dtype, device=like.device)
        for client, (generator, count) in enumerate(zip(self.generators, self.counts, strict=True)):
            part = kept[client, : rows * count]
            drawn = place_images(torch.empty_like(part)) if images else part
            part.copy_(drawn.bernoulli_(1.0 - p, generator=generator))
        return kept.div_(1.0 - p) if p < 1.0 else kept


class _Keep(torch.autograd.Function):
    """`Draws.keep` inside `vmap`, or of one client. `mask` always has the clients' axis, which x may lack."""

    @staticmethod
    def forward(x: torch.Tensor, mask: Any, shape: Any, p: float, images: bool, draws: Draws) -> torch.Tensor:
        return draws.keep(x, shape, p, images=images)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None,) * 6

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, x: torch.Tensor, mask: Any, shape: Any, p: float, images: bool, draws: Draws
    ) -> Any:
        return draws.keep(x, shape, p, images=images), 0


class Functions:
    """The replacements during one forward pass, inside `vmap`.

    `buffers`: those of the network, by name. `filled`: whether a client's batch is filled up.
    """

    def __init__(
        self, mask: torch.Tensor, draws: Draws, buffers: Mapping[str, torch.Tensor], *, filled: bool
    ) -> None:
        self.mask, self.draws, self.filled = mask, draws, filled
        self._tracked = {
            id(buffer): buffers.get(f"{name.removesuffix(MEAN)}{TRACKED}")
            for name, buffer in buffers.items()
            if name.endswith(MEAN)
        }
        self._batch_norm, self._attention = functional.batch_norm, functional.scaled_dot_product_attention
        self._group_norm, self._conv2d = functional.group_norm, functional.conv2d

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Torch has the replacements inside."""
        replacements: dict[str, Any] = {
            "conv2d": self.conv2d,
            "batch_norm": self.batch_norm,
            "group_norm": self.group_norm,
            "dropout": self.dropout,
            **{f"dropout{n}d": self.dropout_channels for n in (1, 2, 3)},
            "scaled_dot_product_attention": self.attention,
        }
        with replaced(functional, **replacements), replaced(torch._VF, lstm=self.lstm):
            yield

    # ------------------------------------------------------------ convolutions

    def conv2d(
        self,
        input: torch.Tensor,  # noqa: A002 (torch's name)
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> torch.Tensor:
        """`torch.nn.functional.conv2d`."""
        plain = groups == 1 and _pair(dilation) == (1, 1) and not isinstance(padding, str)
        if input.device.type == "cpu" or not plain:
            return self._conv2d(input, weight, bias, stride, padding, dilation, groups)
        return conv2d_of_patches(input, weight, bias, _pair(stride), _pair(padding))

    # ------------------------------------------------------------ normalisation

    def batch_norm(
        self,
        input: torch.Tensor,  # noqa: A002 (torch's name)
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> torch.Tensor:
        """`torch.nn.functional.batch_norm`."""
        if not training or not self.filled:
            if input.device.type != "cpu":  # what a convolution of patches returns has another layout
                input = input.contiguous()  # noqa: A001 (torch's name)
            return self._batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
        mask = _along(self.mask, input).to(input.dtype)
        axes = [axis for axis in range(input.dim()) if axis != 1]
        count = self.mask.sum() * (input.numel() // (input.shape[0] * input.shape[1]))
        mean = (input * mask).sum(axes) / count
        var = ((input - _channels(mean, input)).square() * mask).sum(axes) / count
        if running_mean is not None and running_var is not None:
            single = count == 1
            mean, var = torch.where(single, running_mean, mean), torch.where(single, running_var, var)
            self._update(running_mean, running_var, mean.detach(), var.detach(), count, single, momentum)
        result = (input - _channels(mean, input)) * _channels(var + eps, input).rsqrt()
        result = result if weight is None else result * _channels(weight, input)
        return result if bias is None else result + _channels(bias, input)

    def group_norm(self, input: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:  # noqa: A002
        """`torch.nn.functional.group_norm`, which cannot be mapped over values whose channels lie side by side."""
        return self._group_norm(input.contiguous(), *arguments, **options)

    def _update(
        self,
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
        mean: torch.Tensor,
        var: torch.Tensor,
        count: torch.Tensor,
        single: torch.Tensor,
        momentum: float,
    ) -> None:
        rate = momentum * (~single)
        running_mean.add_((mean - running_mean) * rate)
        running_var.add_((var * (count / (count - 1).clamp(min=1)) - running_var) * rate)
        tracked = self._tracked.get(id(running_mean))
        if tracked is not None:
            tracked.sub_(single.to(tracked.dtype))  # the module has counted this batch already

    # ------------------------------------------------------------ dropout

    def dropout(
        self,
        input: torch.Tensor,  # noqa: A002 (torch's name)
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> torch.Tensor:
        """`torch.nn.functional.dropout`; never in place."""
        return self._dropped(input, input.shape, p, training, images=input.dim() == 4)

    def dropout_channels(
        self,
        input: torch.Tensor,  # noqa: A002 (torch's name)
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> torch.Tensor:
        """`torch.nn.functional.dropout1d` to `dropout3d` of (n, channels, ...); never in place."""
        return self._dropped(input, [*input.shape[:2], *[1] * (input.dim() - 2)], p, training)

    def _dropped(
        self, x: torch.Tensor, shape: Sequence[int], p: float, training: bool, *, images: bool = False
    ) -> torch.Tensor:
        if not training or p == 0.0:
            return x
        keep: Any = _Keep.apply  # untyped in torch
        kept: torch.Tensor = x * keep(x.detach(), self.mask, tuple(shape), p, images, self.draws)
        return kept

    # ------------------------------------------------------------ attention

    def attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        """`torch.nn.functional.scaled_dot_product_attention`: softmax(q k' scale + mask) v."""
        if enable_gqa:
            return self._attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        if attn_mask is not None:
            closed = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, -math.inf) if closed else scores + attn_mask
        weights = scores.softmax(-1)
        return self._dropped(weights, weights.shape, dropout_p, dropout_p > 0.0) @ value

    # ------------------------------------------------------------ LSTM

    def lstm(self, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """`torch._VF.lstm` for a tensor of equally long sequences, without dropout and projections.

        Raises ValueError for others.
        """
        x, states, weights, biased, layers, dropout, training, both, batch_first = arguments
        per_direction = 4 if biased else 2
        directions = 2 if both else 1
        if isinstance(biased, (list, tuple)) or len(weights) != per_direction * layers * directions:
            raise ValueError("packed sequences and projections of an LSTM are not stacked")
        if dropout and training and layers > 1:
            raise ValueError("dropout between the layers of an LSTM is not stacked")
        x = x.transpose(0, 1) if batch_first else x  # steps, n, features
        last: list[tuple[torch.Tensor, torch.Tensor]] = []
        for layer in range(layers):
            outputs = []
            for direction in range(directions):
                i = layer * directions + direction
                layer_weights = weights[i * per_direction : (i + 1) * per_direction]
                output, end = _lstm_layer(x, states[0][i], states[1][i], layer_weights, reverse=direction == 1)
                outputs.append(output)
                last.append(end)
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
        h, c = (torch.stack(each_end) for each_end in zip(*last, strict=True))
        return x.transpose(0, 1) if batch_first else x, h, c


def conv2d_of_patches(
    images: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> torch.Tensor:
    """A convolution as one product: (n, channels, height, width) -> (n, filters, rows, columns).

    Each row of the first matrix is what a filter sees at one place, so it is copied as often as filters see it.
    """
    if any(padding):
        images = functional.pad(images, (padding[1], padding[1], padding[0], padding[0]))
    height, width = weight.shape[-2:]
    seen = images.unfold(2, height, stride[0]).unfold(3, width, stride[1])  # n, channels, rows, columns, h, w
    n, _, rows, columns = seen.shape[:4]
    patches = seen.permute(0, 2, 3, 1, 4, 5).reshape(n * rows * columns, -1)
    products = functional.linear(patches, weight.flatten(1), bias)
    return products.view(n, rows, columns, -1).permute(0, 3, 1, 2)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _lstm_layer(
    x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, weights: Sequence[torch.Tensor], *, reverse: bool
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """Outputs (steps, n, width), and the last h and c, each (n, width)."""
    from_input, from_state = weights[0], weights[1]
    gates = x @ from_input.t()
    if len(weights) == 4:
        gates = gates + (weights[2] + weights[3])
    outputs = []
    for step in reversed(range(len(x))) if reverse else range(len(x)):
        i, f, g, o = (gates[step] + h @ from_state.t()).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    return torch.stack(outputs[::-1] if reverse else outputs), (h, c)


def _along(mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """(n,) in a shape that broadcasts to x, whose first axis is n."""
    return mask.reshape(-1, *[1] * (x.dim() - 1))


def _channels(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """(channels,) in a shape that broadcasts to x, whose second axis is the channels."""
    return values.reshape(1, -1, *[1] * (x.dim() - 2))
