"""The FedAvg run beside a run: the same workers, its own folder, and an end when the run itself ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk import SMALL, play, table, weights

from lab.engine.engine import engine
from lab.engine.fedavg_comparison import ComparisonRun, counterpart
from server_app import preparation, session
from server_app.config.compose import compose
from server_app.preparation import Prepared


def prepared(out: Path, *overrides: str) -> Prepared:
    return preparation.prepare(compose([*SMALL, f"out='{out}'", "rounds=3", *overrides]))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_it_is_the_run_of_fedavg(workers: int, tmp_path: Path) -> None:
    from client_app.app import app

    main = prepared(tmp_path, "strategy=fednnnn", "name=main")
    begun: list[ComparisonRun] = []
    with engine(app, main, workers) as desk:

        def on_folder(folder: Path) -> None:
            config = counterpart(main.config, folder)
            assert config is not None
            begun.append(ComparisonRun(desk, config, main))

        outcome = session.run(desk.grid(main), main, evaluate=desk.evaluate(), on_folder=on_folder)
        (beside,) = begun
        assert beside.wait(60)
        assert beside.completed
        assert beside.wait(60)  # again: nothing runs twice
    assert [row["round"] for row in beside.rows] == [0, 1, 2, 3]
    alone = play(tmp_path, "strategy=fedavg", "rounds=3", "name=alone").folder
    assert beside.folder == tmp_path / "main/fedavg"
    assert weights(beside.folder) == weights(alone)
    assert table(beside.folder) == table(alone)
    assert weights(outcome.folder) == weights(play(tmp_path, "strategy=fednnnn", "rounds=3", "name=again").folder)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_it_ends_with_the_run(workers: int, tmp_path: Path) -> None:
    from client_app.app import app

    main = prepared(tmp_path, "strategy=fednnnn", "name=main", "rounds=100000")
    with engine(app, main, workers) as desk:
        config = counterpart(main.config, tmp_path / "main")
        assert config is not None
        beside = ComparisonRun(desk, config, main)
        beside.stop()
    assert beside.wait(60)
    assert not beside.completed


@pytest.mark.slow
def test_a_failed_one_is_not_completed(tmp_path: Path) -> None:
    from client_app.app import app

    main = prepared(tmp_path, "strategy=fednnnn", "name=main")
    with engine(app, main, 1) as desk:
        config = counterpart(main.config, tmp_path / "main")
        assert config is not None
        config.client.lr = 1e30
        beside = ComparisonRun(desk, config, main)
        assert beside.wait(60)
    assert not beside.completed
    assert "RunError" in (beside.folder / "status.json").read_text()
