"""Networks as people write them, for `test_odd_models.py`."""

import torch
from torch import nn

from fedstride import part


class Base(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.first, self.last = nn.Linear(inputs.size, 6), nn.Linear(6, outputs)
        self.prepare()

    def prepare(self): ...
    def forward(self, x):
        return self.last(self.first(x.to(self.first.weight.dtype)).relu())


@part(model="short")
class Short(Base):
    def prepare(self):
        self.bfloat16()


@part(model="half")
class Half(Base):
    def prepare(self):
        self.half()


@part(model="masked")
class Masked(Base):
    def prepare(self):
        self.register_buffer("upper", torch.tensor([torch.inf, torch.nan, 2.0]))
        self.mask = nn.Parameter(torch.full((6, 6), -torch.inf).triu(1), requires_grad=False)

    def forward(self, x):
        h = self.first(x).relu()
        weights = (h[:, :, None] * h[:, None, :] + self.mask).softmax(-1)
        return self.last((weights @ h[:, :, None])[:, :, 0])


@part(model="lazy")
class Lazy(Base):
    def prepare(self):
        self.first = nn.LazyLinear(6)
        self.first.register_buffer("ones", torch.ones(1).expand(6))


@part(model="waves")
class Waves(Base):
    def prepare(self):
        self.phase = nn.Parameter(torch.ones(2, dtype=torch.cdouble))


@part(model="diverged")
class Diverged(Base):
    def prepare(self):
        nn.init.constant_(self.last.bias, float("inf"))


@part(model="counting")
class Counting(Base):
    """Counts its forward passes in a buffer that is not in its state_dict."""

    def prepare(self):
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.register_buffer("cache", None, persistent=False)

    def forward(self, x):
        self.seen = self.seen + self.training
        self.cache = x.mean(0)
        return super().forward(x) * (1 + self.seen)
