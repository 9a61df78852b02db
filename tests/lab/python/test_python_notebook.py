"""In a notebook's kernel: the example, the line below a cell, the stop button."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from fedstride.processes.forks import children

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples/notebook.ipynb"

SMALL = {"client.local_steps": 3, "client.batch_size": 20, "model": "mlp", "clients": 4, "workers": 2}


def example() -> Any:
    return nbformat.read(EXAMPLE, as_version=4)


def outputs(cell: Any, kind: str) -> list[str]:
    """What the outputs of a cell have of this kind, as `text/plain`."""
    return [output.data[kind] for output in cell.outputs if kind in output.get("data", {})]


def test_the_example_has_no_outputs_and_is_short() -> None:
    cells = [cell for cell in example().cells if cell.cell_type == "code"]
    assert not [cell for cell in cells if cell.outputs or cell.execution_count]
    assert EXAMPLE.stat().st_size < 10_000


@pytest.mark.slow
def test_the_example_runs_and_prints_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a new machine: with an empty cache, so that everything is imported and drawn here."""
    monkeypatch.delenv("FEDSTRIDE_RUNS", raising=False)
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(tmp_path / "cache"))
    notebook = example()
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output.text for output in shown if output.output_type == "stream"] == []
    assert not [text for cell in notebook.cells for text in outputs_of(cell) if "\x1b" in text]
    first, *_, plot = [cell for cell in notebook.cells if cell.cell_type == "code"][:6]
    assert outputs(first, "text/plain")[0].startswith("fednnnn, test accuracy ")
    assert outputs(first, "text/html")[0].startswith("<p><b>fednnnn, test accuracy ")
    assert outputs(plot, "image/png")


def outputs_of(cell: Any) -> list[str]:
    return [] if cell.cell_type != "code" else outputs(cell, "text/plain")


class Kernel:
    """A kernel, and cells that are executed in it one after the other."""

    def __init__(self, folder: Path) -> None:
        self.notebook = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
        resources = {"metadata": {"path": str(folder)}}
        self.client = NotebookClient(self.notebook, timeout=600, resources=resources, interrupt_on_timeout=True)

    @property
    def process(self) -> int:
        return int(self.client.km.provisioner.pid)

    async def cell(self, text: str) -> Any:
        cell = nbformat.v4.new_code_cell(text)  # type: ignore[no-untyped-call]
        self.notebook.cells.append(cell)
        return await self.client.async_execute_cell(cell, len(self.notebook.cells) - 1)


@pytest.mark.slow
def test_the_stop_button_ends_a_run_and_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch has computed on threads before, and the kernel has some: its copies work all the same."""
    monkeypatch.delenv("FEDSTRIDE_RUNS", raising=False)  # the kernel has this environment
    asyncio.run(stopped(tmp_path))


async def stopped(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    async with kernel.client.async_setup_kernel():
        await kernel.cell("import torch, fedstride; x = torch.randn(1500, 1500); (x @ x).sum()")
        await kernel.cell(f"whole = fedstride.run({SMALL!r}, rounds=3, name='whole')")
        going = asyncio.create_task(kernel.cell(f"fedstride.run({SMALL!r}, rounds=100_000, name='part')"))
        metrics = tmp_path / "runs/part/metrics.jsonl"
        await until(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 3)
        assert children(kernel.process)
        await kernel.client.km.interrupt_kernel()
        with pytest.raises(CellExecutionError) as error:
            await going
        assert error.value.ename == "KeyboardInterrupt"
        folder = tmp_path / "runs/part"
        assert error.value.evalue == f"the run was stopped; go on with: fedstride.resume({str(folder)!r})"
        assert not children(kernel.process)
        cell = await kernel.cell(
            "import json\n"
            "stood = json.load(open('runs/part/status.json'))['rounds']\n"
            "state = fedstride.results('runs/part')[0].state\n"
            "state, len(fedstride.resume('runs/part', rounds=stood + 2).rounds) - stood"
        )
        assert outputs(cell, "text/plain")[-1] == "('interrupted', 3)"


async def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds; the test's time limit ends this."""
    while not holds():
        await asyncio.sleep(0.05)


@pytest.mark.slow
def test_the_stop_button_ends_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSTRIDE_RUNS", raising=False)
    asyncio.run(stopped_sweep(tmp_path))


async def stopped_sweep(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    async with kernel.client.async_setup_kernel():
        keys = {**SMALL, "workers": 0, "rounds": 100_000}
        going = asyncio.create_task(
            kernel.cell(f"import fedstride\nfedstride.sweep({keys!r}, seed=[1, 2, 3], jobs=2, out='swept')")
        )
        rows = [tmp_path / f"swept/mnist5k-dirichlet-fednnnn-sgd-seed{seed}/metrics.jsonl" for seed in (1, 2)]
        await until(lambda: all(each.exists() and len(each.read_text().splitlines()) > 3 for each in rows))
        await kernel.client.km.interrupt_kernel()
        with pytest.raises(CellExecutionError) as error:
            await going
        assert error.value.ename == "KeyboardInterrupt"
        folder = str(tmp_path / "swept")
        then = f"go on with the same call, resume=True and out={folder!r}"
        assert error.value.evalue == f"0 of 3 runs are completed; {then}"
        assert not children(kernel.process)
        cell = await kernel.cell("[each.state for each in fedstride.results('swept')]")
        assert outputs(cell, "text/plain") == ["['interrupted', 'interrupted']"]
