"""Composing configurations: every choice, wrappers, presets, mistakes and suggested names, resumed runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from client_app.registry import OBJECTIVES, RULES
from fedstride.errors import ConfigError
from fedstride.settings import REQUIRED
from fedstride.tasks.registry import PARTITIONS
from server_app.config import conf as places
from server_app.config import experiments
from server_app.config.compose import choices, compose, describe, digest, from_yaml, to_yaml
from server_app.config.conf import conf_dir
from server_app.config.grammar import quote
from server_app.config.keys import keys
from server_app.config.overrides import overrides_of
from server_app.config.schema import FIXED_ON_RESUME, GROUPS, TABLES, Config
from strategies.registry import STRATEGIES
from strategies.replies.screening_settings import Screening

FedAvg, FedNNNN, FedLWS, TwoDLRD = map(STRATEGIES.config, ("fedavg", "fednnnn", "fedlws", "two_d_lrd"))
NESTED = ("strategy=fednnnn+fedlws+two_d_lrd", "strategy.inner.fixed=[1, 0.9]", "client=fednlr", "cohort=3")


# ---------------------------------------------------------------- conf/


def test_the_default_is_the_quickstart() -> None:
    config = compose()
    assert config.experiment == "quickstart"
    assert config.strategy == FedNNNN(beta=0.7, gamma=0.8)
    assert config.partition == PARTITIONS.config("dirichlet")(alpha=0.1)
    assert (config.rounds, config.clients, config.seed) == (20, 10, 1)
    assert (config.client.name, config.client.lr, config.client.batch_size) == ("sgd", 0.05, 50)
    assert (config.task.name, config.model.name, config.objective.name) == ("mnist5k", "cnn_mnist", "plain")


CHOICES = [(group, name) for group, table in TABLES.items() for name in table]


@pytest.mark.slow
@pytest.mark.parametrize(("group", "name"), CHOICES, ids=lambda value: value)
def test_every_choice_composes_with_its_type_and_defaults_and_comes_back_from_yaml(group: str, name: str) -> None:
    fields = TABLES[group].all_fields(name)
    needed = {key: f for key, f in fields.items() if f.default is REQUIRED}
    required = {key: 2 if f.schema_type is int else ["a", "b"] for key, f in needed.items()}
    config = compose([f"{group}={name}", *(f"{group}.{key}={value}" for key, value in required.items())])
    chosen, kind = getattr(config, group), TABLES[group].config(name)
    assert (chosen.name, type(chosen)) == (name, kind)
    assert from_yaml(to_yaml(config)) == config
    if name not in PRESET:
        inner = {"inner": FedAvg(**INNER_DEFAULTS.get(name, {}))} if TABLES[group].wraps(name) else {}
        assert chosen == kind(**inner, **required)


def test_a_setting_without_a_default_is_required() -> None:
    with pytest.raises(ConfigError, match=r"task.classes is required: give task.classes=VALUE"):
        compose(["task=own_images"])


INNER_DEFAULTS = {"two_d_lrd": {"weighting": "uniform"}}
"""The settings of the FedAvg inside a wrapper that is chosen without a base strategy (A4-1)."""

PRESET = {getattr(compose(), group).name for group in ("strategy", "client", "partition")}
"""The names for which the quickstart can contain settings too."""


@pytest.mark.parametrize("name", [name for name in choices("experiment") if "/" not in name])
def test_every_experiment_in_a_file_composes(name: str) -> None:
    assert compose([f"experiment={name}"]).experiment == name


@pytest.mark.parametrize("group", TABLES)
def test_the_choices_are_the_names_in_the_table(group: str) -> None:
    assert choices(group) == sorted(TABLES[group])


def test_only_experiments_are_files() -> None:
    assert sorted(path.name for path in conf_dir().iterdir() if path.is_dir()) == ["experiment", "papers"]


@pytest.mark.parametrize(("group", "name"), [(g, n) for g in GROUPS for n in choices(g)])
def test_every_choice_has_a_one_line_description(group: str, name: str) -> None:
    line = describe(group, name)
    assert 5 < len(line) <= 120
    assert line.endswith(".")
    assert not line.startswith("@")


def test_the_root_file_has_a_one_line_description() -> None:
    assert (conf_dir() / "config.yaml").read_text().startswith("# The root")


def test_composing_does_not_depend_on_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("rounds: 99\n")
    monkeypatch.chdir(tmp_path)
    assert compose().rounds == 20


def test_a_missing_conf_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "__file__", str(tmp_path / "server_app/config/conf.py"))
    with pytest.raises(ConfigError, match=r"conf/config.yaml was not found in .* install fedstride again"):
        conf_dir()


def test_in_a_wheel_conf_is_inside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "__file__", str(tmp_path / "fedstride/server_app/config/conf.py"))
    inside = tmp_path / "fedstride" / "conf"
    inside.mkdir(parents=True)
    (inside / "config.yaml").write_text("")
    assert conf_dir() == inside


# ---------------------------------------------------------------- overrides


def test_overrides_change_only_their_keys() -> None:
    got = compose(
        ["rounds=3", "client.lr=0.02", "strategy.beta=1.5", "partition.alpha=2", "cohort=4", "out=/tmp/x"]
    )
    usual = compose()
    assert (got.rounds, got.client.lr, got.strategy.beta, got.partition.alpha) == (3, 0.02, 1.5, 2.0)
    assert (got.cohort, got.cohort_size, got.out) == (4, 4, "/tmp/x")
    usual.rounds, usual.client.lr, usual.strategy.beta, usual.partition.alpha = 3, 0.02, 1.5, 2.0
    usual.cohort, usual.out = 4, "/tmp/x"
    assert got == usual


def test_the_last_of_two_overrides_counts() -> None:
    assert compose(["rounds=3", "strategy=krum", "rounds=4", "strategy=fedalr"]).rounds == 4
    assert compose(["strategy=krum", "strategy=fedalr"]).strategy.name == "fedalr"


def test_null_is_allowed_for_optional_keys() -> None:
    assert compose(["cohort=null", "client.local_steps=null", "target=null"]).cohort is None


def test_whole_numbers_are_accepted_as_floats() -> None:
    lr = compose(["client.lr=1"]).client.lr
    assert lr == 1.0 and type(lr) is float


def test_wrappers_around_a_base() -> None:
    config = compose(["strategy=fednnnn+fedlws+two_d_lrd"])
    assert config.strategy == TwoDLRD(inner=FedLWS(inner=FedNNNN()))


def test_settings_of_nested_strategies() -> None:
    strategy = compose(
        [
            "strategy=fednnnn+fedlws+two_d_lrd",
            "strategy.window=3",
            "strategy.inner.beta=0.03",
            "strategy.inner.fixed=[1.0, 0.9]",
            "strategy.inner.inner.gamma=0.5",
        ]
    ).strategy
    assert strategy.window == 3
    assert (strategy.inner.beta, strategy.inner.fixed) == (0.03, [1.0, 0.9])
    assert (strategy.inner.inner.beta, strategy.inner.inner.gamma) == (0.7, 0.5)


def test_wrappers_in_hydras_grammar() -> None:
    own = compose(["strategy=fedlws", "strategy@strategy.inner=fedavgm"]).strategy
    assert own == compose(["strategy=fedavgm+fedlws"]).strategy


def test_flowers_run_config_reaches_everything() -> None:
    run_config = {
        "experiment": "quickstart",
        "strategy": "fedavg+fedlws",
        "client": "fednlr",
        "objective": "fedprox",
        "rounds": 4,
        "seed": "",
        "out": "/tmp/it's my runs",
        "overrides": "strategy.beta=0.05 objective.mu=0.1",
    }
    config = compose(overrides_of(run_config))
    assert config.strategy == FedLWS(beta=0.05, inner=FedAvg())
    assert config.objective == OBJECTIVES.config("fedprox")(mu=0.1)
    assert (config.client.name, config.rounds, config.seed, config.out) == ("fednlr", 4, 1, "/tmp/it's my runs")


@pytest.mark.parametrize("value", ["many", 2.5, True])
def test_flowers_run_config_of_a_wrong_type(value: object) -> None:
    with pytest.raises(ConfigError, match=r"rounds=.* could not be converted to Integer"):
        compose(overrides_of({"rounds": value}))


# ---------------------------------------------------------------- presets of an experiment


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An experiment with presets, in a separate conf/."""
    conf = tmp_path / "conf"
    shutil.copytree(conf_dir(), conf)
    (conf / "experiment" / "mine.yaml").write_text(
        "# @package _global_\n"
        "# Settings for some of the methods.\n"
        "experiment: mine\n"
        "rounds: 7\n"
        "presets:\n"
        "  strategy:\n"
        "    fedlws: {beta: 0.03, tau_min: 0.01, terms: optimization}\n"
        "    fednnnn: {gamma: 0.5, per_layer: true}\n"
        "  client:\n"
        "    fednlr: {a1: 0.45, a2: 0.3}\n"
    )
    monkeypatch.setattr(experiments, "conf_dir", lambda: conf)
    return "experiment=mine"


def test_presets_apply_to_the_chosen_method_only(mine: str) -> None:
    assert {"mine", "quickstart"} < set(choices("experiment"))
    assert describe("experiment", "mine") == "Settings for some of the methods."
    config = compose([mine])
    assert config.rounds == 7
    assert config.strategy == FedNNNN(gamma=0.5, per_layer=True)
    assert compose([mine, "strategy=fedavg"]).strategy == FedAvg()
    assert compose([mine, "strategy=momentum"]).strategy.gamma == 0.9
    assert compose([mine, "client=fednlr"]).client == RULES.config("fednlr")(a1=0.45, a2=0.3)
    assert compose([mine, "client=sgd"]).client.name == "sgd"


def test_presets_reach_nested_strategies(mine: str) -> None:
    strategy = compose([mine, "strategy=fednnnn+fedlws+two_d_lrd"]).strategy
    assert strategy == TwoDLRD(
        inner=FedLWS(
            beta=0.03,
            tau_min=0.01,
            terms="optimization",
            inner=FedNNNN(gamma=0.5, per_layer=True),
        ),
    )


@pytest.mark.parametrize(
    "order", [["client=fednlr", "client.a1=0.9", "strategy.gamma=0.1"], ["strategy.gamma=0.1", "client.a1=0.9"]]
)
def test_overrides_take_precedence_over_presets(mine: str, order: list[str]) -> None:
    config = compose(["client=fednlr", *order, mine])
    assert (config.client.a1, config.client.a2) == (0.9, 0.3)
    assert (config.strategy.gamma, config.strategy.per_layer) == (0.1, True)


def test_presets_do_not_affect_other_experiments(mine: str) -> None:
    assert compose(["experiment=quickstart"]).strategy.gamma == 0.8


@pytest.fixture
def with_presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that writes an experiment with given presets, in a separate conf/."""
    conf = tmp_path / "conf"
    shutil.copytree(conf_dir(), conf)
    monkeypatch.setattr(experiments, "conf_dir", lambda: conf)

    def write(presets: str) -> None:
        (conf / "experiment" / "mine.yaml").write_text(
            f"# @package _global_\n# Mine.\nexperiment: mine\npresets: {presets}\n"
        )

    return write


def test_presets_may_contain_lists(with_presets: Callable[[str], None]) -> None:
    with_presets("{strategy: {fedlws: {fixed: [1.0, 0.9]}}}")
    assert compose(["experiment=mine", "strategy=fedlws"]).strategy.fixed == [1.0, 0.9]


@pytest.mark.parametrize("presets", ["{strateg: {fedlws: {beta: 0.2}}}", "{strategy: {fedlw: {beta: 0.2}}}"])
def test_presets_with_unknown_names_are_config_errors(with_presets: Callable[[str], None], presets: str) -> None:
    with_presets(presets)
    with pytest.raises(ConfigError, match=r"strateg|fedlw"):
        compose(["experiment=mine", "strategy=fedlws"])


def test_empty_presets_of_a_group_are_none(with_presets: Callable[[str], None]) -> None:
    with_presets("{strategy: }")
    assert compose(["experiment=mine", "strategy=fedlws"]).strategy.name == "fedlws"


# ---------------------------------------------------------------- files of experiments


@pytest.fixture
def in_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A function that writes an experiment in a separate conf/, and returns its override."""
    (tmp_path / "experiment").mkdir()
    shutil.copy(conf_dir() / "config.yaml", tmp_path)
    monkeypatch.setattr(experiments, "conf_dir", lambda: tmp_path)

    def write(text: str, name: str = "mine") -> str:
        (tmp_path / f"experiment/{name}.yaml").write_text(text)
        return f"experiment={name}"

    return write


def test_an_experiment_may_build_on_another(in_file: Callable[..., str]) -> None:
    in_file(
        "defaults:\n  - override /strategy: fedlws\n  - override /strategy@strategy.inner: fedavgm\n"
        "rounds: 9\nseed: 5\npresets: {strategy: {fedlws: {beta: 0.2}}}\n",
        "base",
    )
    mine = in_file("defaults:\n  - base\n  - override /client: fednlr\nexperiment: mine\nrounds: 4\n")
    config = compose([mine])
    assert (config.experiment, config.rounds, config.seed) == ("mine", 4, 5)
    assert (config.client.name, config.strategy.name, config.strategy.beta) == ("fednlr", "fedlws", 0.2)
    assert config.strategy.inner.name == "fedavgm"
    assert compose([mine, "strategy=krum"]).strategy.name == "krum"
    assert compose([mine, "method=fedlws"]).strategy.inner.name == "fedavg"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("round: 3", "'round=3' is not allowed: Key 'round' not in 'Config'"),
        ("rounds: many", "'rounds=many' is not allowed: .*Integer"),
        ("client: {lrr: 1}", "'client.lrr=1' is not allowed: Key 'lrr'"),
        ("defaults: [override /strategy: fedavgg]", "unknown strategy 'fedavgg'. Did you mean 'fedavg'"),
        ("defaults: [/strategy: fedavg]", "'/strategy' in `defaults` of .* write 'override /GROUP: NAME'"),
        ("defaults: 3", "`defaults` in .* is not a list"),
        ("defaults: [mine]", "builds on itself"),
        ("defaults: [gone]", "gone.yaml cannot be read"),
        ("presets: [1]", "presets=.* is not allowed"),
        ("rounds: [", "mine.yaml cannot be read"),
        ("[]", "is not an experiment: it must be a mapping"),
    ],
)
def test_a_mistake_in_the_file_of_an_experiment(in_file: Callable[..., str], text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        compose([in_file(f"{text}\n")])
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("override", "said"),
    [
        # names
        ("strategy=fednnn", ["unknown strategy 'fednnn'", "'fednnnn'", "Known: adadecay", "two_d_lrd"]),
        ("client=fednrl", ["unknown client 'fednrl'", "'fednlr'"]),
        ("objective=prox", ["unknown objective 'prox'", "'fedprox'"]),
        ("task=mnist5", ["unknown task 'mnist5'", "'mnist5k'"]),
        ("model=cnn_mnst", ["unknown model 'cnn_mnst'", "'cnn_mnist'"]),
        ("partition=dirichlt", ["unknown partition 'dirichlt'", "'dirichlet'"]),
        ("experiment=quikstart", ["unknown experiment 'quikstart'", "'quickstart'"]),
        ("strategy=null", ["unknown strategy 'None'"]),
        ("strategy=[fedavg, krum]", ["unknown strategy \"['fedavg', 'krum']\""]),
        ("strategy=../client/sgd", ["unknown strategy '../client/sgd'"]),
        ("strategy=fedavgg+fedlws", ["unknown strategy 'fedavgg'", "'fedavg'"]),
        ("strategy=fedavg+krum", ["'krum' is not a wrapper", "fedlws, two_d_lrd"]),
        ("strategy@client=fedavg", ["the only override with @ is strategy@strategy.inner=NAME"]),
        ("strategy@strategy.inner=fedavgg", ["unknown strategy 'fedavgg'", "'fedavg'"]),
        # keys
        ("client.lrr=1", ["unknown key 'client.lrr'", "'client.lr'", "client.momentum"]),
        ("lr=1", ["unknown key 'lr'", "'client.lr'"]),
        ("alpha=1", ["unknown key 'alpha'", "'partition.alpha'"]),
        ("round=1", ["unknown key 'round'", "'rounds'"]),
        ("strategy.gama=1", ["unknown key 'strategy.gama'", "'strategy.gamma'", "strategy.beta"]),
        ("strategy.inner.beta=1", ["unknown key 'strategy.inner.beta'", "'strategy.beta'"]),
        ("strategy.tau_min=1", ["unknown key 'strategy.tau_min'", "strategy.weighting"]),  # FedLWS's
        ("objective.mu=0.1", ["unknown key 'objective.mu'"]),  # FedProx's
        ("presets.strategy.fednnnn.beta=1", ["unknown key 'presets.strategy.fednnnn.beta'"]),
        ("hydra.job.name=x", ["unknown key 'hydra.job.name'"]),
        # grammar
        ("rounds", ["'rounds' is not an override", "key=value"]),
        ("rounds=1,2", ["'rounds=1,2' has several values"]),
        ("+rounds=1", ["'+rounds=1' is not allowed", "not added or removed"]),
        ("~rounds", ["'~rounds' is not allowed"]),
        # types
        ("rounds=many", ["'rounds=many' is not allowed", "'many'", "Integer"]),
        ("rounds=2.5", ["'rounds=2.5' is not allowed", "Integer"]),
        ("rounds=true", ["'rounds=true' is not allowed", "Integer"]),
        ("rounds=null", ["'rounds=null' is not allowed", "not Optional"]),
        ("rounds=[1]", ["'rounds=[1]' is not allowed", "Integer"]),
        ("client.lr=fast", ["'client.lr=fast' is not allowed", "Float"]),
        ("client.lr=[0.1, 0.2]", ["'client.lr=[0.1, 0.2]' is not allowed", "Float"]),
        ("evaluate_clients=maybe", ["'evaluate_clients=maybe' is not allowed", "bool"]),
        ("strategy.beta=big", ["'strategy.beta=big' is not allowed", "Float"]),
        # ranges
        ("rounds=-1", ["rounds = -1 is not allowed", "in [0, 1000000]"]),
        ("rounds=0", ["rounds = 0 is not allowed", "initial=FILE"]),
        ("clients=0", ["clients = 0 is not allowed", "in [1, 100000]"]),
        ("fraction=0", ["fraction = 0.0 is not allowed", "(0, 1]"]),
        ("fraction=1.5", ["fraction = 1.5 is not allowed", "(0, 1]"]),
        ("cohort=11", ["cohort = 11 is not allowed", "between 1 and clients = 10"]),
        ("partition.alpha=0", ["partition.alpha = 0.0 is not allowed", "greater than 0"]),
        ("client.lr=-0.1", ["client.lr = -0.1 is not allowed", "greater than 0"]),
    ],
)
def test_mistakes(override: str, said: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([override])
    text = str(caught.value)
    assert "\n" not in text
    for words in said:
        assert words in text


@pytest.mark.parametrize("override", ["client.name=fednlr", "strategy.name=fedlws", "partition.name=iid"])
def test_the_name_of_a_choice_cannot_be_set(override: str) -> None:
    with pytest.raises(ConfigError, match="unknown key"):
        compose([override])


@pytest.mark.parametrize("override", ["out=${nope}", "rounds=???", "name=???", "rounds=${"])
def test_broken_interpolations_are_config_errors(override: str) -> None:
    with pytest.raises(ConfigError):
        compose([override])


@pytest.mark.parametrize(
    ("key", "meant"),
    [("stratgy=fedavg", "strategy"), ("clint=sgd", "client"), ("expriment=quickstart", "experiment")],
)
def test_the_right_group_is_suggested_for_a_misspelt_one(key: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"'{meant}'"):
        compose([key])


# ---------------------------------------------------------------- Hydra's global state


def test_composing_leaves_no_initialised_hydra() -> None:
    GlobalHydra.instance().clear()
    compose()
    assert not GlobalHydra.instance().is_initialized()
    with pytest.raises(ConfigError):
        compose(["rounds=many"])
    assert not GlobalHydra.instance().is_initialized()


def test_the_callers_hydra_is_restored(tmp_path: Path) -> None:
    (tmp_path / "theirs.yaml").write_text("answer: 42\n")
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        own = GlobalHydra.instance().hydra
        compose(["rounds=3"])
        assert GlobalHydra.instance().hydra is own
        assert hydra_compose("theirs").answer == 42


# ---------------------------------------------------------------- written to a run's folder, and read again


@pytest.mark.parametrize(
    "overrides", [(), NESTED, ("objective=fedprox", "out='/tmp/a b: c'", "target=0.9", "client.local_steps=3")]
)
def test_yaml_there_and_back(overrides: tuple[str, ...]) -> None:
    config = compose(overrides)
    back = from_yaml(to_yaml(config))
    assert back == config
    assert type(back.strategy) is type(config.strategy) and type(back.client) is type(config.client)
    assert to_yaml(back) == to_yaml(config)


@pytest.fixture(scope="module")
def quickstart() -> str:
    return to_yaml(compose())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rounds: 20", "rounds: many", "Integer"),
        ("rounds: 20", "rounds: 0", "rounds = 0"),
        ("rounds: 20", "nope: 3", "nope"),
        ("beta: 0.7", "bet: 0.7", "bet"),
        ("name: fednnnn", "name: gone", "gone"),
    ],
)
def test_a_configuration_of_another_version(quickstart: str, old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"not a configuration of this version of fedstride: .*{said}"):
        from_yaml(quickstart.replace(old, new))


@pytest.mark.parametrize("text", ["", "[]", "strategy: 3", ": :", "a: [", "just text"])
def test_a_damaged_configuration_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match="not a configuration of this version"):
        from_yaml(text)


def test_a_key_that_is_newer_than_the_file_has_its_default(quickstart: str) -> None:
    assert from_yaml(quickstart.replace("  quorum: 1\n", "")).screening == Screening()


@pytest.mark.slow
def test_the_digest_depends_on_what_the_weights_depend_on(quickstart: str) -> None:
    usual = digest(from_yaml(quickstart))
    assert digest(compose(["rounds=9", "target=0.5", "patience=2", "timeout=5", "out=/tmp/x", "name=y"])) == usual
    found = {usual, digest(compose(["strategy=fedavg"]))}
    for path, value in (
        ("client.lr", 0.04),
        ("strategy.beta", 0.71),
        ("partition.alpha", 0.2),
        ("seed", 2),
        ("screening.quorum", 2),
        ("screening.factor", None),
        ("fraction", 0.5),
        ("cohort", 4),
    ):
        config = from_yaml(quickstart)
        *groups, key = path.split(".")
        setattr(getattr(config, groups[0]) if groups else config, key, value)
        found.add(digest(config))
    assert len(found) == 10


# ---------------------------------------------------------------- resumed runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run of it's own"
    folder.mkdir()
    (folder / "config.yaml").write_text(to_yaml(compose([*NESTED, "client.lr=0.07"])))
    return folder


def resume(folder: Path, *overrides: str) -> Config:
    return compose([*overrides_of({"resume": str(folder)}), *overrides])


def test_a_resumed_run_has_its_original_configuration(run: Path) -> None:
    config = resume(run)
    expected = compose([*NESTED, "client.lr=0.07"])
    expected.resume = str(run)
    assert config == expected


def test_a_resumed_run_may_have_more_rounds(run: Path) -> None:
    assert resume(run, "rounds=50", "patience=3").rounds == 50
    assert digest(resume(run, "rounds=50")) == digest(resume(run))


UNLIKE = {
    "allow": ["other_client_code"],
    "checkpoint_every": 7, "clients_at_once": 3, "rules_on": "host",
    "engine": "ray",
    "evaluate_clients": True, "evaluate_every": 3, "initial": "elsewhere.safetensors", "licence": "CC BY 4.0",
    "nodes": "clinic-*",
    "max_empty_rounds": 9, "min_clients": 2, "mute_rounds": 5, "node_ids": "any", "node_wait": 1.5, "patience": 4,
    "rounds": 50, "target": 0.5, "test_set": False, "timeout": 2.5, "track": ["tensorboard"],
    "workers": 3,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("key", UNLIKE)
def test_a_resumed_run_may_change_keys_without_influence_and_keys_that_extend_it(run: Path, key: str) -> None:
    usual, config = resume(run), resume(run, f"{key}={quote(UNLIKE[key])}")
    assert getattr(config, key) == UNLIKE[key] != getattr(usual, key)
    assert digest(config) == digest(usual)


def test_every_changeable_key_is_tested() -> None:
    changeable = {key.path for key in keys(compose(NESTED)) if key.may_change}
    assert changeable == {*UNLIKE, *FIXED_ON_RESUME, "resume", "parts"}


@pytest.mark.parametrize("key", ["name", "out", "against"])
def test_a_resumed_run_cannot_change_its_folder_or_what_it_compares(run: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} = 'elsewhere', but the run in"):
        resume(run, f"{key}=elsewhere")


@pytest.mark.parametrize("override", ["best=test/loss", "best_quorum=3"])
def test_a_resumed_run_cannot_change_which_round_is_the_best(run: Path, override: str) -> None:
    """The model of the best round so far is kept, and no other."""
    with pytest.raises(ConfigError, match=r"best.* = .*, but the run in .* has "):
        resume(run, override)


def test_a_resumed_run_may_repeat_its_own_values(run: Path) -> None:
    assert resume(run, *NESTED, "client.lr=0.07", "experiment=quickstart", "fraction=1").rounds == 20


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("seed=2", ["seed = 2", "has 1"]),
        ("client.lr=0.05", ["client.lr = 0.05", "has 0.07"]),
        ("client=sgd", ["client.name = 'sgd'", "has 'fednlr'"]),
        ("strategy=fednnnn+fedlws", ["strategy.name = 'fedlws'", "has 'two_d_lrd'"]),
        ("strategy=fedavg+fedlws+two_d_lrd", ["strategy.inner.inner.name = 'fedavg'", "has 'fednnnn'"]),
        ("strategy.inner.fixed=[1, 0.8]", ["strategy.inner.fixed = [1, 0.8]"]),
        ("screening.quorum=2", ["screening.quorum = 2", "has 1"]),
        ("experiment=other", ["experiment = 'other'", "has 'quickstart'"]),
        ("client.device=cpu", ["client.device = 'cpu'", "has 'auto'"]),
    ],
)
def test_a_resumed_run_cannot_change_what_the_result_depends_on(run: Path, override: str, said: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        resume(run, override)
    for words in [
        *said,
        str(run),
        "can change only ",
        "patience, resume, rounds, rules_on, target",
        "start a new run",
    ]:
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [("client.lrr=1", "'client.lr'"), ("rounds=many", "'rounds=many'"), ("rounds=0", "rounds = 0")],
)
def test_mistakes_in_the_overrides_of_a_resumed_run(run: Path, override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resume(run, override)


def test_a_folder_without_a_run_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a run folder: .*config.yaml does not exist"):
        resume(tmp_path)


# ---------------------------------------------------------------- 2D-LRD by name (A4-1, A4-10)


@pytest.mark.parametrize(
    ("overrides", "weighting"),
    [
        (["strategy=two_d_lrd"], "uniform"),
        (["strategy=two_d_lrd", "strategy.inner.weighting=examples"], "examples"),
        (["strategy=fedavg+two_d_lrd"], "examples"),
        (["strategy=two_d_lrd", "strategy@strategy.inner=fedavg"], "examples"),
        (["strategy=fedavg+two_d_lrd", "strategy.inner.weighting=uniform"], "uniform"),
        (["strategy=fedlws"], "examples"),
    ],
)
def test_two_d_lrd_without_a_base_weighs_clients_equally(overrides: list[str], weighting: str) -> None:
    config = compose(overrides)
    assert config.strategy.inner.weighting == weighting
    assert from_yaml(to_yaml(config)) == config


@pytest.mark.parametrize("strategy", ["two_d_lrd", "fednnnn+fedlws+two_d_lrd"])
def test_local_steps_that_differ_from_those_of_2d_lrd_are_rejected(strategy: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"client\.local_steps = 3 .*: .*strategy\.local_steps = 10, because two_d_lrd",
    ):
        compose([f"strategy={strategy}", "client.local_steps=3"])
    assert compose([f"strategy={strategy}", "client.local_steps=10"]).client.local_steps == 10
    assert compose([f"strategy={strategy}", "client.local_steps=3", "strategy.local_steps=3"]) is not None


def test_one_configuration_has_nothing_of_the_one_before() -> None:
    first = compose(["strategy=fedlws", "strategy.beta=0.5", "rounds=3"])
    second = compose(["strategy=fedlws", "seed=7"])
    assert (first.rounds, first.strategy.beta, first.seed) == (3, 0.5, 1)  # type: ignore[attr-defined]
    assert (second.rounds, second.seed) == (20, 7)
    assert second.strategy.beta != 0.5  # type: ignore[attr-defined]


def test_a_folder_with_runs_says_what_to_resume(run: Path, tmp_path: Path) -> None:
    (above := tmp_path / "above" / "first").mkdir(parents=True)
    (above / "config.yaml").write_bytes((run / "config.yaml").read_bytes())
    with pytest.raises(ConfigError, match=r"does not exist; the run is in .*/above/first: resume that$"):
        resume(above.parent)
    (above.parent / "second").mkdir()
    (above.parent / "second" / "config.yaml").write_bytes((run / "config.yaml").read_bytes())
    with pytest.raises(ConfigError, match=r"it has several: resume one of them, or all with fedstride run -m"):
        resume(above.parent)
    with pytest.raises(ConfigError, match=r"does not exist$"):
        resume(above / "nothing")
