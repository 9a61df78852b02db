"""What federations share with the models alone and pooled, and which are refused before any run."""

from __future__ import annotations

import pytest

from fedstride.errors import ConfigError
from lab.comparison import shared_training, whole_comparison
from server_app.config.compose import compose

BASE = ("task=breast_cancer", "model=mlp", "clients=3", "holdout=0.3", "partition=dirichlet", "rounds=2")
ALONE = "alone takes as many steps as the site does in the federation"


def asked(*given: str) -> whole_comparison.ComparisonRequest:
    return whole_comparison.asked([*BASE, *given], [1])


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("rounds=1,8", "rounds = 1, 8"),
        ("client.lr=0.1,0.01", "client.lr = 0.1, 0.01"),
        ("client.batch_size=10,20", "client.batch_size = 10, 20"),
        ("client.local_steps=2,3", "client.local_steps = 2, 3"),
        ("model=mlp,svm", "model = mlp, svm"),
        ("model.width=8,16", "model.width = 8, 16"),
        ("partition.alpha=0.3,100", "partition.alpha = 0.3, 100"),
        ("partition=iid,dirichlet", "partition = iid, dirichlet"),
        ("seed=1,2", "seed = 1, 2"),
        ("holdout=0.2,0.3", "holdout = 0.2, 0.3"),
        ("fold=0,1", "fold = 0, 1"),
        ("split_seed=0,1", "split_seed = 0, 1"),
        ("clients=3,4", "clients = 3, 4"),
        ("task=breast_cancer,mnist5k", "task = breast_cancer, mnist5k"),
    ],
)
def test_federations_share_what_alone_and_pooled_have(given: str, line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        asked(given)
    assert str(refused.value) == (
        f"{line}: the federations must share what alone and pooled have; make one comparison for each"
    )


@pytest.mark.parametrize(
    "given",
    [
        ("strategy=fedavg,fednnnn,fedlws",),
        ("strategy=fednnnn", "strategy.beta=0.1,0.5"),
        ("client=sgd,fednlr",),
        ("objective=plain,fedprox",),
        ("strategy=fedavg,two_d_lrd", "client.local_steps=10"),
        ("cohort=3",),
        ("screening.factor=2,3",),
    ],
)
def test_lists_of_what_only_a_federation_has_stay(given: tuple[str, ...]) -> None:
    assert asked(*given).configs


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (("cohort=2",), "cohort = 2 is not allowed: cohort must be 3, all clients"),
        (("fraction=0.5",), "fraction = 0.5 is not allowed: fraction must be 1"),
        (("target=0.9",), "target = 0.9 is not allowed: target must be null"),
        (("patience=2",), "patience = 2 is not allowed: patience must be null"),
        (("strategy=fedavg,fednnnn", "patience=2"), "patience = 2"),
        (("strategy=fedavg,two_d_lrd",), "client.local_steps = null, 10"),
    ],
)
def test_federations_of_other_lengths_are_refused_in_one_line(given: tuple[str, ...], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        asked(*given)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_too_many_steps_for_pooled_are_refused() -> None:
    most = shared_training.MOST_STEPS // 3
    assert asked(f"client.local_steps={most}").configs
    with pytest.raises(ConfigError, match=rf"client.local_steps = {most + 1} .* at most {most}"):
        asked(f"client.local_steps={most + 1}")


@pytest.mark.parametrize(
    ("given", "alone", "pooled"),
    [
        (("client.local_steps=5",), 5, 15),
        (("strategy=two_d_lrd", "strategy.local_steps=4"), 4, 12),
        (("client.local_epochs=2",), None, None),
    ],
)
def test_pooled_takes_the_steps_of_all_sites(
    given: tuple[str, ...], alone: int | None, pooled: int | None
) -> None:
    one = shared_training.by_one(compose([*BASE, *given]))
    both = shared_training.pooled(one, 3)
    assert (one.client.local_steps, both.client.local_steps) == (alone, pooled)
    assert both.client.local_epochs == one.client.local_epochs


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ((), [f"{ALONE}; pooled uses each row as often as the federation does"]),
        (("client.local_steps=5",), [f"{ALONE}; pooled as many as all sites together"]),
        (
            ("strategy=two_d_lrd",),
            [
                f"{ALONE}; pooled as many as all sites together",
                "two_d_lrd can take fewer steps in later rounds, alone and pooled do not",
            ],
        ),
    ],
)
def test_the_page_says_how_long_they_are_trained(given: tuple[str, ...], lines: list[str]) -> None:
    assert shared_training.in_words(compose([*BASE, *given])) == lines
