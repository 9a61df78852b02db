"""A page about one run: is its model good enough, and at every site? With a row a site."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from browsing import CHROMIUM, WIDTHS, browse, framed
from folders import Call, config, lines, make

from fedstride.figures.intervals_by_counts import of_rate
from lab.plots import KINDS
from lab.report import report
from lab.results.good_enough import NO, OPEN, YES, quality, reaches
from lab.results.run_folders import Run, load
from server_app.reports.sites import SiteFigure

AUROC = "local/auroc"
OWN = ("task=own_table", "task.columns=['x']", "task.classes=['no','yes']", "partition=own", f"best={AUROC}")


def site(name: str, area: float | None, deviation: float = 0.02, rows: int = 80, **more: Any) -> dict[str, Any]:
    figures = {} if area is None else {AUROC: area, f"{AUROC}/error": 0.0, f"{AUROC}/deviation": deviation}
    measured = {"local/num-examples": rows, "local/loss": 0.4, "local/accuracy": 0.75, **figures}
    return {"client": name, "status": "used", "num-examples": 4 * rows, **measured, **more}


def study(
    folder: Path,
    sites: list[dict[str, Any]],
    *overrides: str,
    overall: Mapping[str, float] | None = None,
    rounds: int = 3,
    **how: Any,
) -> Run:
    """A run of a deployment whose sites have these rows in each round."""
    figures = overall or {AUROC: 0.86, f"{AUROC}/deviation": 0.01, "local/loss": 0.4}
    settings = config(*OWN, f"clients={len(sites)}", f"rounds={rounds}", *overrides)
    clients = [{"round": t, **each} for t in range(1, rounds + 1) for each in sites]
    path = make(folder, settings, [None] * rounds, clients=clients, extra=lambda t: figures, **how)
    return load(path)


GOOD = [site("north", 0.90, rows=120), site("south", 0.84), site("small", 0.80, deviation=0.15, rows=9)]


@pytest.mark.parametrize(
    ("target", "answer", "words"),
    [
        (0.79, YES, "yes at north, south; it cannot be said at small"),
        (0.87, OPEN, "it cannot be said at north, small, south"),  # 0.8392 to 0.8785
        (0.95, NO, "no at north, south; it cannot be said at small"),
    ],
)
def test_the_answer_follows_the_intervals(tmp_path: Path, target: float, answer: str, words: str) -> None:
    found = quality(study(tmp_path / "run", GOOD), target)
    assert found.text.startswith(
        f"Is it good enough? Over all: {answer}. Local auroc is 0.8600 (95 % interval 0.8392"
    )
    assert f"the target is {target:.4f}" in found.text and "measured on 209 rows of 3 sites" in found.text
    assert found.sites[0].lower().startswith(f"at every site? {words}")
    assert "Best site: north, 0.9000" in found.sites[1] and "Worst site: south, 0.8400" in found.sites[1]
    assert found.warnings == ("Too few rows to say: small (9 rows measured, the interval is wider than 0.2).",)


def test_without_a_target_the_figure_and_what_would_decide(tmp_path: Path) -> None:
    found = quality(study(tmp_path / "a", GOOD))
    assert found.text.startswith("Local auroc is 0.8600 (95 %") and "--target VALUE" in found.text
    own = quality(study(tmp_path / "b", GOOD, "target=0.8"))
    assert own.text.startswith("Is it good enough? Over all: yes.")  # that of the run


@pytest.mark.parametrize(("error", "said"), [(0.4059, "within 0.4059"), (0.0708, "within 0.0708"), (0.0, "")])
def test_a_figure_from_bins_says_how_far_it_can_be_off(tmp_path: Path, error: float, said: str) -> None:
    run = study(tmp_path / "run", GOOD, overall={AUROC: 0.73, f"{AUROC}/error": error, "local/loss": 0.4})
    lines = [each for each in quality(run).sites if "bins of scores" in each]
    assert [said in each for each in lines] == ([True] if said else [])
    assert all(line in unescape(report([run])) for line in lines)


def test_sites_of_one_class_and_sites_that_are_absent(tmp_path: Path) -> None:
    silent = {"client": "mute", "status": "no reply", "reason": "no reply in 5 s"}
    run = study(tmp_path / "run", [*GOOD[:2], site("healthy", None, rows=40), silent])
    found = quality(run)
    assert "measured at 3 sites, of which 2 have a figure of their own" in found.text
    assert "No local auroc: healthy (40 rows measured), mute." in found.warnings
    assert not any("Too few rows" in each for each in found.warnings)
    answer = quality(run, 0.75).sites[0]
    assert "it cannot be said at healthy, mute, because it has no figure" in answer
    assert any("mute (0 of 3)" in each for each in found.warnings)


@pytest.mark.parametrize("state", ["failed", "interrupted"])
def test_a_run_that_did_not_end_well_says_it_first(tmp_path: Path, state: str) -> None:
    found = quality(study(tmp_path / "run", GOOD, state=state, reason="the disk is full"))
    assert found.warnings[0].startswith(f"The run {state} (the disk is full)")


def test_a_model_that_was_only_measured(tmp_path: Path) -> None:
    settings = config(*OWN, "clients=3", "rounds=0", "initial=model.safetensors")
    row = {"round": 0, AUROC: 0.9, f"{AUROC}/deviation": 0.01}
    folder = make(tmp_path / "run", settings, [], clients=[{"round": 0, **each} for each in GOOD])
    lines(folder / "metrics.jsonl", [row])
    run = load(folder)
    assert quality(run, 0.8).text.startswith("Is it good enough? Over all: yes. Local auroc is 0.9000")
    assert cells(report([run]))[1][2:5] == ["–", "120", "1 of 1"]  # no rows were trained on


def test_smaller_is_better_and_no_interval() -> None:
    assert reaches(SiteFigure("local/rmse", 3.0), 3.5) == YES and reaches(SiteFigure("local/rmse", 3.0), 2.5) == NO
    assert reaches(SiteFigure("local/rmse", 3.0, (2.0, 4.0)), 3.5) == OPEN
    assert reaches(SiteFigure("local/rmse", 3.0, (2.0, 4.0)), 4.5) == YES


def test_the_worst_site_of_an_error_is_the_largest(tmp_path: Path) -> None:
    sites = [{"client": f"s{k}", "status": "used", "num-examples": 9, "local/rmse": 1.0 + k} for k in range(3)]
    run = study(tmp_path / "run", sites, "task.kind=values", "best=local/rmse", overall={"local/rmse": 2.0})
    found = quality(run, 2.5)
    assert found.text.startswith("Is it good enough? Over all: yes.")
    assert found.sites[0] == "At every site? Yes at s0, s1; no at s2."
    assert found.sites[1] == "Best site: s0, 1. Worst site: s2, 3."


def cells(html: str) -> list[list[str]]:
    body = html.partition("sites of ")[2].partition("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", body)
    return [
        [unescape(re.sub("<.*?>", "", cell)) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows
    ]


def test_a_row_a_site(tmp_path: Path) -> None:
    away = {"client": "away", "status": "rejected", "reason": "'fc1' contains <NaN>"}
    html = report([study(tmp_path / "run", [*GOOD, away])])
    head, *rows = cells(html)
    assert head == [
        "site",
        "local auroc",
        "rows trained",
        "rows measured",
        "rounds",
        "local loss",
        "local accuracy",
    ]
    assert [row[0] for row in rows] == ["away", "north", "small", "south"]
    low, high = of_rate(0.75, 120)
    accuracy = f"75.00 % ({100 * low:.2f} % to {100 * high:.2f} %)"
    assert rows[1] == ["north", "0.9000 (0.8534 to 0.9329)", "480", "120", "3 of 3", "0.4", accuracy]
    assert rows[0] == ["away", "–", "–", "–", "0 of 3", "–", "–"]
    assert "away: its last reply was not used: &#x27;fc1&#x27; contains &lt;NaN&gt;" in html
    assert "Nothing to compare" not in html
    assert html.index("Is it good enough" if "Is it good enough" in html else "Local auroc is") < html.index(
        "<nav>"
    )
    assert html.index(">Sites</h2>") < html.index(">Results</h2>")


@pytest.mark.slow
def test_the_sites_of_several_runs_are_folded_below_the_comparison(tmp_path: Path) -> None:
    runs = [study(tmp_path / f"{name}", GOOD, f"strategy={name}") for name in ("fedavg", "fednnnn")]
    html = report(runs)
    assert html.count("<summary>fed") == 2 and html.index(">Results</h2>") < html.index(">Sites</h2>")


def test_runs_whose_sites_say_nothing_have_no_such_section(tmp_path: Path) -> None:
    clients = [{"round": 1, "client": k, "status": "used", "num-examples": 5} for k in range(3)]
    html = report([load(make(tmp_path / "run", config(), [0.5], clients=clients))])
    assert ">Sites</h2>" not in html
    assert "Test accuracy is 50.00 %. Whether" in html


def test_a_fetched_run_without_the_file_of_its_task(tmp_path: Path) -> None:
    run = study(tmp_path / "run", GOOD)
    text = (run.folder / "config.yaml").read_text()
    task = re.search(r"^task:\n(?:  .*\n)+", text, re.MULTILINE)
    assert task
    changed = "task:\n  name: of_the_hospitals\n  loss: null\n  metrics:\n  - auroc\n"
    changed = text.replace(task[0], changed).replace("parts: null", "parts: /nowhere/hospitals.py")
    (run.folder / "config.yaml").write_text(changed)
    html = report([load(run.folder)], target=0.8)
    assert "/nowhere/" not in html and "in hospitals.py" in html and "parts: hospitals.py" in html
    assert "Is it good enough? Over all: yes." in html and "of_the_hospitals" in html
    assert "not available on this machine" not in html  # no partition was drawn, so none is missing
    assert KINDS["labels"].shown([load(run.folder)]) == []


def test_the_command(tmp_path: Path, call: Call) -> None:
    study(tmp_path / "run", GOOD)
    code, _, err = call("report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html"), "--target", "0.8")
    assert (code, err) == (0, "")
    assert "Over all: yes" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs the program chromium (apt install chromium)")
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_the_screen(tmp_path: Path, width: int) -> None:
    names = ["a hospital with a very long name that goes on and on", "klinikum-rechts-der-isar-und-anderswo", "x"]
    html = report([study(tmp_path / "run", [site(name, 0.9) for name in names])], target=0.85)
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    probe = (
        "<script>setTimeout(() => { parent.document.body.dataset.needed = document.documentElement.scrollWidth; })"
    )
    page = framed(bare.replace("</body>", f"{probe}</script></body>"), width, tmp_path)
    dom = browse(page, max(width, 600), False, "--dump-dom", "--allow-file-access-from-files").stdout
    found = re.search(r'data-needed="(\d+)"', dom)
    assert found and int(found[1]) <= width
    shutil.rmtree(tmp_path / "profile", ignore_errors=True)


FEW = [
    {"client": name, "status": "used", "num-examples": 99, "local/num-examples": rows, "local/recall": value}
    | ({} if fewest is None else {"local/recall/fewest": fewest})
    for name, rows, value, fewest in (
        ("north", 90, 0.8, 40), ("one-row", 1, 1.0, None), ("south", 80, 0.7, 30), ("va", 32, 0.1, 4),
    )
]  # fmt: skip


@pytest.mark.parametrize("target", [0.05, 0.5, 0.99])
def test_a_site_with_too_few_rows_has_one_answer(tmp_path: Path, target: float) -> None:
    run = study(tmp_path / "run", FEW, "best=local/recall", overall={"local/recall": 0.75})
    found = quality(run, target)
    answer, extremes = found.sites
    assert answer.lower().endswith("it cannot be said at one-row, va, because too few rows were measured.")
    assert extremes == "Best site: north, 80.00 %. Worst site: south, 70.00 %."
    (warning,) = found.warnings
    assert "one-row (1 rows measured, fewer than 10 rows)" in warning
    assert "va (32 rows measured, fewer than 10 rows of a class)" in warning
    page = unescape(report([run], target=target))
    assert "va: too few rows to say: fewer than 10 rows of a class" in page


def test_a_wide_interval_on_one_side_of_the_target_has_one_answer(tmp_path: Path) -> None:
    run = study(tmp_path / "run", [*GOOD[:2], site("va", 0.5, deviation=0.1, rows=32)])
    found = quality(run, 0.95)
    assert "it cannot be said at va, because too few rows were measured" in found.sites[0]
    assert found.warnings == ("Too few rows to say: va (32 rows measured, the interval is wider than 0.2).",)


def test_over_all_too_few_rows_say_nothing(tmp_path: Path) -> None:
    run = study(tmp_path / "run", FEW[1:2], "best=local/recall", overall={"local/recall": 1.0})
    found = quality(run, 0.5)
    assert found.text.startswith("Is it good enough? Over all: it cannot be said.")
    assert found.sites == ("At every site? It cannot be said at one-row, because too few rows were measured.",)


FEW_HELD = {"client": "seven", "status": "used", "num-examples": 6, "local/num-examples": 0}
AT_A_NODE = [site("a", None, rows=39), site("c", None, rows=40), FEW_HELD]


@pytest.mark.parametrize("metrics", ["[auroc,accuracy]", "[sensitivity_at_90,auroc,accuracy]"])
def test_without_the_figure_that_decides_the_page_begins_with_the_first_measured(
    tmp_path: Path, metrics: str
) -> None:
    overall = {"local/accuracy": 0.6506, "local/loss": 0.6}
    best = f"local/{metrics[1:].split(',')[0]}"
    run = study(tmp_path / "run", AT_A_NODE, f"task.metrics={metrics}", f"best={best}", overall=overall)
    found = quality(run)
    assert found.text.startswith("Local accuracy is 65.06 % (95 % interval ")
    why = found.sites[0]
    assert "was not measured in any round" in why and "`min_rows`" in why and "`holdout`" in why
    assert "of each class" in why and "a 39, c 40" in why and "seven" not in why
    assert "seven" in quality(run, 0.6).sites[1] and "none" not in quality(run, 0.6).sites[1]
    page = unescape(report([run]))
    assert "has the metric" not in page and "no figure" not in page and "local accuracy (%), last" in page
    assert "seven: too few rows to say" in page


def test_a_run_with_no_figure_at_all_says_why(tmp_path: Path) -> None:
    few = [{**FEW_HELD, "client": name} for name in ("x", "y")]
    found = quality(study(tmp_path / "run", few, overall={"train/loss": 0.3}))
    assert found.text.startswith("No figure. Local auroc was not measured") and "`min_rows`" in found.text


def test_a_site_with_a_wide_interval_is_not_named_as_the_worst(tmp_path: Path) -> None:
    wide = site("va", 0.5, deviation=0.1, rows=32)
    found = quality(study(tmp_path / "run", [site("best", 0.95), *GOOD[:2], wide]))
    assert "Best site: best" in found.sites[0] and "Worst site: south" in found.sites[0]
    assert "va (32 rows measured" in found.warnings[0]
