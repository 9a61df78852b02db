"""The report: self-contained, complete, with a correct command for each run."""

from __future__ import annotations

import base64
import hashlib
import html as html_module
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import pytest
from folders import LAYERS, METHODS, Call, config, make, make_all

from fedstride.errors import ConfigError
from lab.papers.links import links
from lab.plots import KINDS
from lab.plots.panels import Band, by_layer
from lab.report import report
from lab.report.browser_panels import data
from lab.report.diagnostics import IN_THE_COMPARISON
from lab.report.page import GENERATOR, save
from lab.report.repeat import command, overrides_for
from lab.report.sections import failures
from lab.results.run_folders import Run, load
from server_app.config.compose import compose, digest
from server_app.config.overrides import parse

pytestmark = pytest.mark.usefixtures("cache")

LOST = [
    {"round": 1, "client": 0, "status": "used"},
    {"round": 1, "client": 1, "status": "rejected", "reason": "'fc1.weight' contains <NaN>"},
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedAvg and the five methods with two seeds; one failed run, and one with a rejected reply."""
    root = make_all(tmp_path_factory.mktemp("runs"))
    make(root / "broken", config("seed=7"), [0.2], state="failed", reason="RunError: <b>no</b> client & none")
    (root / "broken/checkpoint/round-000001").mkdir(parents=True)
    lost = config("strategy=fedavg", "seed=9", "rounds=3")
    make(root / "lost", lost, [0.5, 0.6, 0.7], clients=LOST, extra=lambda t: {"screening/rejected": int(t == 1)})
    return root


@pytest.fixture(scope="module")
def html(runs: list[Run]) -> str:
    return report(runs, ["skipped: something"], target=0.9)


class Reader(HTMLParser):
    """Collects tags and text of the page; fails if tags are not closed in order."""

    VOID = frozenset({"meta", "br", "wbr"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.text.setdefault(self.open[-1], []).append(data)

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def page(html: str) -> Reader:
    return Reader(html)


# ---------------------------------------------------------------- one file


@pytest.mark.slow
def test_the_page_is_self_contained(html: str, page: Reader) -> None:
    names = {tag for tag, _ in page.tags}
    assert not names & {"link", "iframe", "object", "embed", "video", "audio", "base", "form"}
    papers = {link.url for link in links(METHODS)}
    assert len(papers) == 3
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "srcset", "data", "action", "poster"):
                assert (value or "").startswith("#s") or (tag == "a" and value in papers)
    (style,) = page.text["style"]
    assert "url(" not in style
    assert "@import" not in style
    rest = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert set(re.findall(r"https?://[^\"<]*", rest)) == papers


@pytest.mark.slow
def test_only_the_scripts_of_the_page_may_run(page: Reader) -> None:
    data, library, drawing = page.text["script"]
    (policy,) = [
        meta["content"] for meta in page.attributes("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (library, drawing)
    )
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}"
    assert "Permission is hereby granted, free of charge" in library  # its licence goes with it
    assert re.findall(r"[\"'(]https?://", drawing) == []
    assert "<" not in data


@pytest.mark.slow
def test_the_charts_have_the_figures_of_the_runs(page: Reader) -> None:
    drawn = json.loads(page.text["script"][0])
    places = [each for each in page.attributes("div") if each.get("class") == "chart"]
    assert [each["data-chart"] for each in places] == [str(number) for number in range(len(drawn))]
    first = drawn[0]
    assert (first["title"], first["unit"]) == ("test accuracy by rounds", " %")
    line = next(each for each in first["lines"] if each["name"] == "fednnnn")
    at = dict(zip(first["points"], line["mean"], strict=True))
    assert at == {0: 10.0, 1: 52.0, 2: 81.5, 3: 91.0}  # both seeds: 81 and 82 in round 2
    assert line["low"][2] == 81.0 and line["high"][2] == 82.0
    assert [each["title"] for each in drawn[:3]] == [
        "test accuracy by rounds",
        "test loss by rounds",
        "test accuracy by seconds",
    ]


def test_what_the_methods_measured_is_drawn_with_their_figures(page: Reader) -> None:
    drawn = json.loads(page.text["script"][0])
    by_title = {each["title"]: each for each in drawn}
    (whole, *layers) = [each for each in drawn if each["title"] == "N, norm of the averaged update"]
    assert (whole["caption"], [each["caption"] for each in layers]) == ("whole model", list(LAYERS))
    assert whole["points"] == [1, 2, 3] and whole["lines"][0]["mean"] == [0.5, 0.25, 0.166667]
    assert {line["name"] for line in whole["lines"]} == set(METHODS)
    gamma = by_title["gamma, factor of the weights"]
    assert {line["name"]: line["mean"][0] for line in gamma["lines"]} == {"conv1": 1.0, "fc1": 0.99}
    etas = by_title["eta of each client"]
    assert (etas["kind"], etas["x"], etas["columns"]) == ("heat", "round", ["1", "2", "3"])
    assert [row[0] for row in etas["values"][:4]] == [0.4, None, 0.6, None]  # clients 1 and 3 did not take part
    detector = by_title["the detector, in squared norms of weights"]
    assert detector["marks"] == [2]  # d increases
    rates = by_title["rate of each mini-batch, as a fraction of the first"]
    assert [row[1] for row in rates["values"]] == [1.0, 0.8, 0.64] and (rates["low"], rates["high"]) == (0, 1)
    neurons = by_title["rates in fc1"]
    assert neurons["log"] and [line["mean"][0] for line in neurons["lines"]] == [0.2, 0.05, 0.02]
    held = by_title["examples of each class"]
    assert sum(value or 0 for row in held["values"] for value in row) == 4000
    assert held["columns"][0].startswith("0 (") and held["columns"][0].endswith(" examples)")
    assert IN_THE_COMPARISON == {"accuracy", "seconds"} < set(KINDS)


def test_many_layers_are_a_map() -> None:
    layers = [f"layer{number}" for number in range(20)]
    bands = {layer: Band([1.0, 2.0], [0.5, 0.25], [0.5, 0.25], [0.5, 0.25], 1) for layer in layers}
    drawing = data(by_layer("tau", "here", "tau", bands))
    assert (drawing["kind"], drawing["rows"], drawing["values"]) == ("heat", layers, [[0.5, 0.25]] * 20)
    assert by_layer("tau", "here", "tau", dict.fromkeys(layers)).is_empty
    assert data(by_layer("tau", "here", "tau", {"a": bands["layer0"]}))["kind"] == "lines"


def test_the_page_fits_phones(page: Reader) -> None:
    (viewport,) = [meta["content"] for meta in page.attributes("meta") if meta.get("name") == "viewport"]
    assert viewport == "width=device-width, initial-scale=1"
    boxes = [attributes for attributes in page.attributes("div") if attributes.get("class") == "box"]
    assert len(boxes) == len(page.attributes("table"))
    targets = {attributes["href"] for attributes in page.attributes("a")} - {link.url for link in links(METHODS)}
    assert targets == {f"#{attributes['id']}" for attributes in page.attributes("h2")}


# ---------------------------------------------------------------- content


def test_the_sections_are_in_order(page: Reader) -> None:
    assert page.text["title"] == ["fedstride: 6 methods, 14 runs"]
    assert page.text["h2"] == [
        "Results",
        "Curves",
        "Diagnostics of the methods",
        "Differences between configurations",
        "Failures",
        "Runs",
        "Versions and hardware",
        "How to repeat each run",
        "Papers",
    ]


def test_results_are_those_of_the_tables(html: str) -> None:
    # fednnnn, the second of METHODS: both seeds have 0.91 in the last round and reach 0.9 in round 3
    for cell in ("91.00 ± 0.00 (n=2)", "3.0 ± 0.0 (2 of 2)"):
        assert f"<td>{cell}</td>" in html
    assert "<td>83.33 ± 11.55 (n=3)</td>" in html  # fedavg: 90, 90, 70
    assert "rounds until test accuracy is 90 %" in html
    assert "the others full epochs" in html


def test_failures_have_reasons_and_their_text_is_escaped(html: str, root: Path) -> None:
    assert "broken failed (RunError: &lt;b&gt;no&lt;/b&gt; client &amp; none), 1 of 20 rounds completed" in html
    assert f"resume with: fedstride resume {root / 'broken'}" in html
    assert "lost: 1 replies were not used: 1 times: &#x27;fc1.weight&#x27; contains &lt;NaN&gt;" in html
    assert "skipped: something" in html


def test_how_an_ended_run_goes_on_depends_on_what_there_is_of_it(tmp_path: Path) -> None:
    folder = make(tmp_path / "run", config(), [0.2], state="failed", reason="RunError: no client")
    assert "it has no checkpoint, so start it again" in failures([load(folder)], [])
    (folder / "fetched.json").write_text(json.dumps({"state": "failed", "folder": "/srv/fl/runs/12/it's mine"}))
    said = html_module.unescape(failures([load(folder)], []))
    given = re.search("fedstride submit CONNECTION (.*)</li>", said)
    assert given is not None and "fedstride resume" not in said
    assert [each.value for each in parse(shlex.split(given[1]))] == ["/srv/fl/runs/12/it's mine"]


def test_versions_hardware_and_parameters_are_included(html: str) -> None:
    assert "python 3.11, flwr 1.39.0; a processor, 2 cores, no GPU; Linux" in html
    assert "beta=0.1, granularity=layer" in html
    assert "partition.alpha=0.1" in html


def test_a_page_without_completed_runs(tmp_path: Path) -> None:
    run = load(make(tmp_path / "a", config(), [], state="failed", reason="no data", clients=[]))
    text = report([run])
    assert "none of 1 runs is completed" in text
    assert "failed (no data), 0 of 20 rounds completed" in text
    Reader(text)


@pytest.mark.slow
def test_differences_between_settings(tmp_path: Path) -> None:
    runs = [load(make(tmp_path / a, config(f"partition.alpha={a}"), [0.5])) for a in ("0.5", "5")]
    text = report(runs)
    assert "differences between the settings" in text
    assert '<th scope="row" class="word">alpha=0.5</th><td>0.5</td>' in text


@pytest.mark.slow
def test_plots_without_their_data_are_replaced_by_the_reason(tmp_path: Path) -> None:
    run = load(make(tmp_path / "a", config("partition.min_size=3000"), [0.5]))
    text = report([run])
    assert "not available on this machine: partition.alpha = 0.1 gave no draw" in text


# ---------------------------------------------------------------- how to repeat


REQUESTS = [
    [],
    ["strategy=fedavg", "client=fednlr", "client.a1=0.45", "seed=3"],
    ["strategy=fednnnn+fedlws+two_d_lrd", "strategy.window=1", "strategy.inner.beta=0.03", "objective=fedprox"],
    ["strategy=fedlws", "strategy.fixed=[1.0,0.99,0.98]", "strategy.tau_min=0.01"],
    ["strategy=fedlws", "strategy@strategy.inner=fedadam", "strategy.inner.eta=0.1"],
    ["model=mlp", "rounds=7", "cohort=3", "target=0.9", "patience=2", "client.local_steps=4", "client.lr=1e-05"],
    ["partition=iid", "strategy=fedalr"],
    ["partition.alpha=100", "best=test/loss", "evaluate_every=0", "client.device=cpu", "screening.factor=50"],
]


@pytest.mark.slow
@pytest.mark.parametrize("request_", REQUESTS, ids=" ".join)
def test_the_command_gives_the_configuration_of_the_run(tmp_path: Path, request_: list[str]) -> None:
    wanted = compose([*request_, f"out='{tmp_path}'", "name=elsewhere"])
    run = load(make(tmp_path / "a", wanted))
    words = shlex.split(command(run))
    assert words[:3] == ["fedstride", "run", "--no-compare"]
    again = compose(words[3:])
    assert digest(again) == digest(run.config)
    assert (again.rounds, again.target, again.patience) == (wanted.rounds, wanted.target, wanted.patience)


def test_only_differences_are_in_the_command() -> None:
    assert overrides_for(config()) == []
    assert overrides_for(config("strategy=fedlws", "seed=2", "client.lr=0.05")) == [
        "strategy=fedavg+fedlws",
        "seed=2",
    ]


BEST = shlex.quote("best='test/accuracy'")


def test_the_fedavg_comparison_run_is_repeated(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", config())
    make(folder / "fedavg", config("strategy=fedavg"))
    assert command(load(folder)) == f"fedstride run {BEST}"


def test_a_run_whose_experiment_does_not_exist_any_more(tmp_path: Path) -> None:
    settings = config()
    settings.experiment = "gone"
    text = command(load(make(tmp_path / "a", settings)))
    assert text.startswith("# this version has no command that repeats the run (unknown experiment 'gone'")
    assert text.endswith(f"{tmp_path / 'a'}/config.yaml")


@pytest.mark.slow
def test_every_run_of_the_page_has_its_command(page: Reader, runs: list[Run]) -> None:
    commands = page.text["code"]
    assert len(commands) == len(runs)
    for text, run in zip(commands, runs, strict=True):
        assert digest(compose(shlex.split(text)[3:])) == digest(run.config)


# ---------------------------------------------------------------- the file and the command


def test_only_reports_by_fedstride_are_replaced(tmp_path: Path, html: str) -> None:
    path = tmp_path / "new/report.html"
    save(html, path)
    save(html + " ", path)
    assert path.read_text() == html + " "
    path.write_text("<html>mine</html>")
    with pytest.raises(ConfigError, match="is not a report by fedstride: it is not overwritten"):
        save(html, path)
    assert path.read_text() == "<html>mine</html>"
    with pytest.raises(ConfigError, match="is a folder"):
        save(html, tmp_path)


def test_the_command_writes_the_page(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "runs/a", config("strategy=fedavg"), [0.9])
    code, out, err = call("report", "runs", "--target", "0.5")
    assert (code, out, err) == (0, f"1 run, {tmp_path / 'report.html'}\n", "")
    text = (tmp_path / "report.html").read_text()
    assert f'content="{GENERATOR}"' in text
    assert "rounds until test accuracy is 50 %" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name one or more run folders"),
        (["nowhere"], "nowhere does not exist"),
        (["RUNS", "-o", "mine.html"], "it is not overwritten"),
        (["RUNS", "-o", "RUNS"], "is a folder"),
        (["RUNS", "--target", "90"], "test/accuracy is a fraction, so 90 % is 0.9"),
    ],
)
def test_invalid_requests_give_exit_code_2(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "RUNS/a", config(), [0.9])
    (tmp_path / "mine.html").write_text("mine")
    code, out, err = call("report", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "report.html").exists()
