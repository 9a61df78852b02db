"""What a message may ask of a node, and what may leave it, by the site's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedstride.error_kinds import ErrorKind, Fault
from fedstride.messages import wire
from fedstride.tasks.data_toml.dictionary_file import read_columns
from fedstride.tasks.data_toml.site import SiteData
from fedstride.tasks.inputs import Inputs
from fedstride.tasks.inputs import Kind as Of
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec
from node.log.log_lines import RefusedError
from node.messages.replies import Contents
from node.policy.permission import PolicyTerms
from node.policy.policy_file import Policy

DICTIONARY = read_columns({"age": "number", "sex": ["female", "male"], "ill": ["no", "yes"]}, ["ill"])
SITE = SiteData(Path("/srv/x.csv"), b"k" * 32, dictionary=DICTIONARY)
FORM = Spec(
    Inputs(Of.TABLE, (1,)), 2, names=("no", "yes"), reading=Reading(columns=("age",), targets=("ill",))
).flatten()
SAYS = Policy(description=True)
NOISE_SAYS = Policy(clipping_norm=1.0, noise_multiplier=1.0, description=True)
NOISE = Policy(clipping_norm=1.0, noise_multiplier=1.0)


def message(settings: dict[str, Any]) -> Contents:
    said = {"holdout": 0.2} | settings
    return Contents(
        (wire.CONFIG,), {wire.CONFIG: {key: value for key, value in said.items() if value is not None}}
    )


def reply(*names: str, **values: Any) -> Contents:
    named = {key.replace("__", "/").replace("_", "-"): value for key, value in values.items()}
    return Contents((wire.ARRAYS, wire.METRICS, *names), {wire.METRICS: named})


def refused(terms: PolicyTerms, contents: Contents) -> Fault:
    with pytest.raises(RefusedError) as caught:
        terms.check(contents)
    return caught.value.told


def test_the_default_policy_allows_what_the_data_file_says() -> None:
    PolicyTerms(Policy(), SITE).check(message(FORM | {"holdout": 0.2, "task.name": "own_table"}))
    PolicyTerms(Policy(), None).check(message({"task.name": "digits"}))
    PolicyTerms(Policy(tasks=("blood",)), SITE).check(message(FORM | {"task.name": "blood"}))
    PolicyTerms(Policy(), None).check(Contents(("do",), {"do": {"do": "train"}}))


@pytest.mark.parametrize(
    ("policy", "settings", "told"),
    [
        (Policy(), FORM | {"reading.columns": ["patient=Jane|?"]}, Fault(ErrorKind.SETTING, "reading.columns")),
        (Policy(), FORM | {"reading.targets": ["sex"]}, Fault(ErrorKind.SETTING, "reading.targets")),
        (Policy(), FORM | {"spec.shape": "x"}, Fault(ErrorKind.SETTING)),
        (Policy(), FORM | {"holdout": 0.9999999}, Fault(ErrorKind.POLICY, "holdout")),
        (Policy(), FORM | {"holdout": "0.2"}, Fault(ErrorKind.POLICY, "holdout")),
        (Policy(), FORM | {"holdout": True}, Fault(ErrorKind.POLICY, "holdout")),
        (Policy(), FORM | {"holdout": [0.2]}, Fault(ErrorKind.POLICY, "holdout")),
        (Policy(), FORM | {"holdout": None}, Fault(ErrorKind.POLICY, "holdout")),
        (Policy(), FORM | {"holdout": 0.2, "fold": 1}, Fault(ErrorKind.POLICY, "fold")),
        (Policy(folds=True), FORM | {"holdout": 0.2, "fold": 5}, Fault(ErrorKind.POLICY, "fold")),
        (Policy(folds=True), FORM | {"holdout": 0.2, "fold": -1}, Fault(ErrorKind.POLICY, "fold")),
        (Policy(folds=True), FORM | {"holdout": 0.2, "fold": True}, Fault(ErrorKind.POLICY, "fold")),
        (Policy(folds=True), FORM | {"holdout": 0.2, "fold": 1.0}, Fault(ErrorKind.POLICY, "fold")),
        (Policy(folds=True), FORM | {"holdout": 0.2, "fold": "1"}, Fault(ErrorKind.POLICY, "fold")),
        (Policy(), FORM | {"client.batch_size": 19}, Fault(ErrorKind.POLICY, "client.batch_size")),
        (Policy(), FORM | {"spec.scale": 0.01}, Fault(ErrorKind.SETTING, "spec.scale")),
        (Policy(), FORM | {"spec.outputs": 1}, Fault(ErrorKind.SETTING, "reading.targets")),
        (Policy(), {"task.name": "mine"}, Fault(ErrorKind.POLICY)),  # its app would read the files
        (Policy(tasks=("blood",)), FORM | {"task.name": "own_table"}, Fault(ErrorKind.POLICY, "task.name")),
        (Policy(tasks=("blood",)), FORM, Fault(ErrorKind.POLICY, "task.name")),
        (Policy(tasks=("blood",)), {}, Fault(ErrorKind.POLICY, "task.name")),
        (
            Policy(metrics=("f1",)),
            FORM | {"task.metrics": ["f1", "auroc"]},
            Fault(ErrorKind.POLICY, "task.metrics"),
        ),
        (NOISE, FORM | {"moments": True}, Fault(ErrorKind.POLICY, "moments")),
        (NOISE, FORM | {"class-moments": True}, Fault(ErrorKind.POLICY, "class-moments")),
        (NOISE, FORM | {"membership": 1}, Fault(ErrorKind.POLICY, "membership")),
        (Policy(), FORM | {"description": True}, Fault(ErrorKind.POLICY, "description")),
        (Policy(), {"description": 1}, Fault(ErrorKind.POLICY, "description")),
        (
            Policy(raw_data=True, records=None),
            FORM | {"description": "yes"},
            Fault(ErrorKind.POLICY, "description"),
        ),
        (NOISE_SAYS, FORM | {"description": True}, Fault(ErrorKind.POLICY, "description")),
        (SAYS, FORM | {"description": True, "holdout": 0.5}, Fault(ErrorKind.POLICY, "holdout")),
        (SAYS, FORM | {"description": True, "spec.kind": "image"}, Fault(ErrorKind.SETTING, "spec.kind")),
        (SAYS, FORM | {"reading.columns": ["patient"]}, Fault(ErrorKind.SETTING, "reading.columns")),
    ],
)
def test_what_is_refused(policy: Policy, settings: dict[str, Any], told: Fault) -> None:
    assert refused(PolicyTerms(policy, SITE), message(settings)) == told


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"reading.columns": ["patient"]},
        {"reading.columns": ["sex=f|m"], "spec.shape": [2]},
        {"reading.targets": ["sex"]},
    ],
)
def test_a_description_says_itself_which_columns_are_not_as_asked(settings: dict[str, Any]) -> None:
    PolicyTerms(SAYS, SITE).check(message(FORM | settings | {"description": True}))


def test_a_description_of_a_tasks_data_is_refused_too_unless_the_policy_allows_it() -> None:
    assert refused(PolicyTerms(Policy(), None), message({"description": True})) == Fault(
        ErrorKind.POLICY, "description"
    )
    PolicyTerms(SAYS, None).check(message({"description": True}))


def test_a_description_leaves_in_the_answer_to_the_roll_call_unless_noise_is_demanded() -> None:
    found = Contents((wire.ROLL_CALL,), {wire.ROLL_CALL: {"description.rows": 100, "client-id": 1}})
    for policy in (SAYS, Policy(records=(), metrics=(), clipping_norm=1.0, description=True)):
        PolicyTerms(policy, None).check_reply(found)
    with pytest.raises(RefusedError, match=r"description\.rows', which no noise protects"):
        PolicyTerms(NOISE_SAYS, None).check_reply(found)


def test_apps_read_the_files_only_where_the_policy_says_so() -> None:
    PolicyTerms(Policy(raw_data=True), SITE).check(message({"task.name": "mine"}))


@pytest.mark.parametrize(
    ("hours", "now", "allowed"),
    [
        ((480, 1020), 480, True),
        ((480, 1020), 1020, False),
        ((480, 1020), 479, False),
        ((1320, 360), 1400, True),
        ((1320, 360), 0, True),
        ((1320, 360), 360, False),
        ((1320, 360), 720, False),
    ],
)
def test_the_hours(hours: tuple[int, int], now: int, allowed: bool) -> None:
    terms = PolicyTerms(Policy(hours=hours), None, lambda: now)
    if allowed:
        terms.check(message({}))
    else:
        assert refused(terms, message({})) == Fault(ErrorKind.POLICY)


@pytest.mark.parametrize(
    ("kind", "share", "rows", "held", "enough"),
    [
        ("train", 0.0, 40, 20, True),
        ("train", 0.0, 19, 0, False),
        ("evaluate", 0.0, 20, 0, True),
        ("train", 0.2, 40, 20, True),
        ("train", 0.2, 39, 20, False),
        ("query", 0.2, 39, 20, False),
        ("evaluate", 0.2, 39, 20, False),
        ("evaluate", 0.2, 200, 19, False),
        ("evaluate.other", 0.2, 22, 1, False),
        ("train", 0.2, 22, 1, True),
        ("train.other", 0.2, 200, 19, True),
        ("query", 0.2, 20, 0, True),
    ],
)
def test_training_and_measuring_need_rows(kind: str, share: float, rows: int, held: int, enough: bool) -> None:
    terms = PolicyTerms(Policy(), SITE)
    given: tuple[Any, ...] = (kind, {wire.HOLDOUT: share}, rows, {"0.2": held})
    if enough:
        terms.check_rows(*given)
    else:
        with pytest.raises(RefusedError, match="min_rows = 20") as caught:
            terms.check_rows(*given)
        assert caught.value.told == Fault(ErrorKind.FEW_ROWS) and "min_rows" in str(caught.value.told)


@pytest.mark.parametrize(
    ("policy", "contents", "said"),
    [
        (Policy(records=()), reply("scaffold.delta"), "the record 'scaffold.delta'"),
        (Policy(records=("scaffold.delta",)), reply("scaffold.delta", "class-moments"), "'class-moments'"),
        (Policy(metrics=()), reply(local__accuracy=0.5), "the figure 'accuracy'"),
        (Policy(metrics=("auroc",)), reply(local__auroc=[0.1], against__f1=[0.1]), "the figure 'f1'"),
        (Policy(metrics=("auroc",)), reply(difference__brier=[0.1, 0.0, 0.2, 0.05]), "the figure 'brier'"),
        (NOISE, reply(num_examples=1, difference__auroc=[0.1]), "which no noise protects"),
        (
            Policy(),
            reply(membership__auroc=[0.6], membership__rows=[50, 40]),
            "'membership/auroc', which the policy",
        ),
        (Policy(), reply(membership__few=[1]), "'membership/few', which the policy"),
        (NOISE, reply(num_examples=1, membership__rows=[50, 40]), "which the policy does not allow"),
        (Policy(clipping_norm=1.0), reply("scaffold.delta"), "'scaffold.delta', which no clipping protects"),
        (NOISE, reply(train__loss=0.5), "the value 'train/loss', which no noise protects"),
        (NOISE, reply(num_examples=77), "the number of examples, which no noise protects"),
        (NOISE, reply(moments__mean=[1.0]), "which no noise protects"),
    ],
)
def test_what_may_not_leave(policy: Policy, contents: Contents, said: str) -> None:
    with pytest.raises(RefusedError, match=said) as caught:
        PolicyTerms(policy, None).check_reply(contents)
    assert caught.value.told == Fault(ErrorKind.POLICY)


def test_what_is_too_large_to_be_looked_at_is_refused() -> None:
    with pytest.raises(RefusedError, match="more than 65536 bytes"):
        PolicyTerms(Policy(raw_data=True), SITE).check(Contents((wire.CONFIG,), {}, (wire.CONFIG,)))
    with pytest.raises(RefusedError, match="too large"):
        PolicyTerms(Policy(), None).check_reply(Contents((wire.METRICS,), {}, (wire.METRICS,)))


@pytest.mark.parametrize(
    ("policy", "contents"),
    [
        (Policy(), reply("scaffold.delta", local__auroc=[0.1], num_examples=77)),
        (Policy(records=("scaffold.delta",)), reply("scaffold.delta")),
        (Policy(metrics=("auroc",)), reply(local__auroc=[0.1], local__loss=0.2)),
        (Policy(membership=True), reply(membership__auroc=[0.6], membership__rows=[50, 40])),
        (Policy(metrics=("auroc",)), reply(against__auroc=[0.1], against__loss=0.2, difference__auroc=[0.1])),
        (NOISE, reply(num_examples=1, client_id=3, done__scaffold=1)),
    ],
)
def test_what_may_leave(policy: Policy, contents: Contents) -> None:
    PolicyTerms(policy, None).check_reply(contents)
