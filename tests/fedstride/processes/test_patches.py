"""Attributes are replaced for a while, and are afterwards as before."""

from __future__ import annotations

import types

import pytest
import torch

from fedstride.processes.patches import replaced


def test_attributes_are_as_before_also_after_an_error() -> None:
    module = types.ModuleType("module")
    module.a, module.b = 1, 2  # type: ignore[attr-defined]
    with replaced(module, a=3, b=4):
        assert (module.a, module.b) == (3, 4)
    assert (module.a, module.b) == (1, 2)
    with pytest.raises(AttributeError), replaced(module, a=3, c=4):
        module.missing  # noqa: B018
    assert (module.a, module.b) == (1, 2)
    assert not hasattr(module, "c")


def test_an_attribute_that_a_module_finds_elsewhere_is_deleted_again() -> None:
    found = torch._VF.lstm
    with replaced(torch._VF, lstm=len):
        assert torch._VF.lstm is len
    assert "lstm" not in vars(torch._VF)
    assert torch._VF.lstm == found
