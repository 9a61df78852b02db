"""The model card of a run, Markdown: what was trained on how many rows of how many sites, and what it is worth.

Everything in it comes from the run's records. Texts of others (names, values of settings) cannot end a table's
cell or begin markup.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord

from fedstride.errors import counted, printable
from fedstride.figures.metrics import shown
from fedstride.tasks.spec import Spec, Target

from ..config.keys import keys, label, names
from ..config.schema import Config
from ..evaluation import membership
from ..evaluation.differences import HEAD, pairs_in
from ..evaluation.differences import NOTE as PAIRS_NOTE
from ..records.row_values import Row, number
from ..records.versions import versions
from .sites import SiteRecord, Sites, over_all

MOST_SITES = 50
"""Sites in the table; of more, the rest is counted."""

NO_PRIVACY = "none"

NOT_STATED = "not stated (the setting `licence` states it)"

NOT_TESTED = (
    "Not tested: the rows stay at the sites, and none of them has answered. The evaluation of the last round of "
    "training asks the smallest site, if clients evaluate."
)

ENDED_EARLY = (
    "Not tested: the rows stay at the sites. The evaluation of the last planned round asks the smallest one, and "
    "this run ended before."
)

NOT_COMPLETED = "Not tested: the run is not completed."

SAID_ELSEWHERE = frozenset({"experiment", "out", "name", "resume", "presets", "seed", "rounds", "licence"})
"""Settings that do not stand in the list of settings."""

Audit = Callable[[Config, Spec, ArrayRecord, int], str]
"""What a membership test of this client finds, in one sentence: the configuration, the task, the whole model."""


class Card:
    """What is known of a run for its card. `name`: of its folder.

    `spec`: the task, once it is known. `audit`: a membership test where the rows are; None: there is none.
    `medians`: what is known of those that replace missing cells.
    """

    def __init__(self, config: Config, name: str) -> None:
        self.spec: Spec | None = None
        self.audit: Audit | None = None
        self.medians: Sequence[str] = ()
        self._config, self._name, self._sites = config, name, Sites(config)

    def add(self, clients: Iterable[Row]) -> None:
        """Take over the rows of a round's clients."""
        self._sites.add(clients)

    @property
    def sites(self) -> Sequence[SiteRecord]:
        """What the rows say of each site."""
        return self._sites.all

    def text(self, row: Row, arrays: ArrayRecord, state: str) -> str:
        """The card after the round of this row, with its whole model. `state`: how the run ended."""
        facts = CardFacts(
            name=self._name,
            config=self._config,
            spec=self.spec,
            row=row,
            sites=self.sites,
            state=state,
            values=sum(math.prod(array.shape) for array in arrays.values()),
            membership=self._membership(row, arrays) if state == "completed" else NOT_COMPLETED,
            medians=self.medians,
        )
        return written(facts)

    def _membership(self, row: Row, arrays: ArrayRecord) -> str:
        """What the test finds at the smallest site. `row`: of the last round."""
        if self.audit is None and self._config.evaluate_clients and row["round"] < self._config.rounds:
            return ENDED_EARLY
        if self.audit is None:
            asked = [site for site in self.sites if site.tested.get("round") == row["round"]]
            said = (membership.in_words(site.tested, _plain(site.name)) for site in asked)
            return next(filter(None, said), NOT_TESTED)
        client = self._sites.smallest
        if self.spec is None or client is None:
            return NOT_TESTED
        try:
            return self.audit(self._config, self.spec, arrays, client)
        except Exception as error:  # of any part of the run: a card is not worth a run
            reason = next(iter(str(error).splitlines()), "")
            return _plain(f"Not tested: {type(error).__name__}: {reason}"[:300])


@dataclass(frozen=True)
class CardFacts:
    """What a card says. `row`: of the last round; `values`: how many the model has."""

    name: str
    config: Config
    spec: Spec | None
    row: Row
    sites: Sequence[SiteRecord]
    state: str
    values: int
    membership: str
    medians: Sequence[str] = ()


def written(facts: CardFacts) -> str:
    """The text."""
    parts = [
        f"# Model card: {_plain(facts.name)}",
        _about(facts),
        "## Trained on",
        _trained_on(facts),
        *(["\n".join(f"- {_plain(line)}" for line in facts.medians)] if facts.medians else []),
        "## Figures",
        _figures(facts),
        *(["## Two models", _pairs(facts)] if facts.config.against else []),
        "## Membership",
        facts.membership,
        *(["## Privacy", _privacy(facts)] if facts.config.privacy.name != NO_PRIVACY else []),
        "## Settings",
        _settings(facts.config),
        "## Versions",
        ", ".join(f"{name} {version}" for name, version in versions().items()),
        "## Licence",
        _plain(facts.config.licence) if facts.config.licence else NOT_STATED,
        "## Use",
        _use(),
    ]
    return "\n\n".join(parts) + "\n"


def _about(facts: CardFacts) -> str:
    config, spec = facts.config, facts.spec
    predicts = ""
    if spec is not None:
        named = ", ".join(map(_plain, spec.names[:20])) or f"0 to {spec.outputs - 1}"
        what = {
            Target.CLASS: f"one of the classes {named}",
            Target.LABELS: f"the labels {named}",
            Target.VALUES: f"the values {named}",
            Target.SURVIVAL: "the logarithm of a risk",
        }
        predicts = f" It predicts {what[spec.target]}, from examples of kind {spec.inputs}."
    return (
        f"The network `{config.model.name}` ({facts.values:,} values), trained for the task `{config.task.name}` "
        f"with `{label(config)}` and the client rule `{config.client.name}`, in {facts.row.get('round', 0)} of "
        f"{counted(config.rounds, 'round')}, seed {config.seed}. The run is {facts.state}.{predicts}"
    )


def _trained_on(facts: CardFacts) -> str:
    if not facts.config.rounds:
        return "Nothing was trained: the model of the setting `initial` was measured."
    known = [site for site in facts.sites if site.rows is not None]
    total = sum(site.rows or 0 for site in known)
    several = "site" if len(known) == 1 else "sites"
    return (
        f"{total:,} rows of {len(known)} {several}, as the sites count them in a round of training. The "
        "rows stayed where they are."
    )


def _figures(facts: CardFacts) -> str:
    shown_sites = facts.sites[:MOST_SITES]
    metrics = list(dict.fromkeys(metric for site in shown_sites for metric in site.figures))
    head = ["site", "rows trained", "rows measured", "rounds attended", *map(shown, metrics)]
    lines = [_line(head), _line(["---", *["--:"] * (len(head) - 1)])]
    lines += [_line(_cells(site, metrics)) for site in shown_sites]
    if len(facts.sites) > MOST_SITES:
        lines.append(f"\n{len(facts.sites) - MOST_SITES} more sites are in `clients.jsonl`.")
    whole = [f"- {shown(metric)}: {figure.text}" for metric, figure in over_all(facts.row, facts.sites).items()]
    few = [
        f"- {_plain(site.name)}: {why}"
        for site in shown_sites
        if site.evaluated and (why := site.why_it_says_little(facts.config.headline))
    ]
    note = (
        "In brackets: the interval of 95 % by the number of rows that were measured (shares of all rows: Wilson; "
        "AUROC of two classes: Hanley and McNeil), where it is known. It says nothing of another seed. "
        "`fedstride evaluate FOLDER`, where the rows are, has intervals of the other figures too, and of AUROC "
        "those of DeLong from the scores themselves, which differ a little."
    )
    all_of_them = ["Over all sites (`local`), or on the server's test set (`test`):\n\n" + "\n".join(whole)]
    return "\n\n".join(
        [
            "\n".join(lines),
            *(all_of_them if whole else []),
            *(["Sites with too few rows to judge the model:\n\n" + "\n".join(few)] if few else []),
            note,
        ]
    )


def _pairs(facts: CardFacts) -> str:
    """A table for each figure: a row a site, and one for all of them."""
    every = pairs_in(facts.row)
    of_site = [(site.name, site.pairs) for site in facts.sites[:MOST_SITES]]
    parts = [f"The model of `initial` and that of `against`, `{_code(facts.config.against)}`."]
    for figure in dict.fromkeys(figure for _, pairs in (*of_site, ("", every)) for figure in pairs):
        rows = [(name, pairs.get(figure)) for name, pairs in (*of_site, ("all", every))]
        known = [(name, pair) for name, pair in rows if pair is not None]
        lines = [_line(["site", *HEAD]), _line(["---", *["--:"] * len(HEAD)])]
        lines += [_line([_plain(name), *pair.cells]) for name, pair in known]
        parts += [f"{_plain(known[0][1].name)}:", "\n".join(lines)]
    none = [_plain(name) for name, pairs in of_site if not pairs]
    parts += [f"No difference of {', '.join(none)}: too few rows of a class, or no reply."] if none else []
    return "\n\n".join([*parts, PAIRS_NOTE])


def _cells(site: SiteRecord, metrics: Sequence[str]) -> list[str]:
    return [
        _plain(site.name),
        _count(site.rows),
        _count(site.measured),
        f"{site.attended} of {site.asked}",
        *(site.figures[metric].text if metric in site.figures else "-" for metric in metrics),
    ]


def _privacy(facts: CardFacts) -> str:
    """What was spent, and what the figure does not cover."""
    epsilon, delta = number(facts.row, "privacy/epsilon"), getattr(facts.config.privacy, "delta", math.nan)
    if epsilon is None:
        return "Updates were shortened, and no noise was added: nothing is promised."
    return (
        f"With `privacy={facts.config.privacy.name}`, the models of all rounds are ({epsilon:.3g}, "
        f"{delta:g})-differentially private for the update of a client that took part in each "
        "round, compared with an update of zero. Not covered, also in this card: figures, counts, and who "
        "took part (docs/privacy.md)."
    )


def _settings(config: Config) -> str:
    chosen = ", ".join(f"{path}={name}" for path, name in names(config).items())
    other = [
        f"- `{key.path}={_code(_name_of(key.value) if key.field.setting.path else key.value)}`"
        for key in keys(config)
        if key.path not in SAID_ELSEWHERE and key.value != key.field.default
    ]
    return "\n\n".join(
        [
            f"Chosen: `{_code(chosen)}`.",
            "Other than the defaults, or decided by the task:",
            "\n".join(other) or "none",
        ]
    )


def _name_of(path: Any) -> Any:
    """The last part of a path, or of each of a list: a card is handed on, and says nothing of other folders."""
    if isinstance(path, (list, tuple)):
        return [_name_of(each) for each in path]
    return Path(path).name if isinstance(path, str) else path


def _use() -> str:
    return (
        "`fedstride predict FOLDER SOURCE` writes predictions, `fedstride export FOLDER --to FILE` a file for "
        "other programs; `task.json` says how an example is prepared. The model was measured on the rows of these "
        "sites only. Whether it may be used for anybody's care is not said by these figures."
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _count(rows: int | None) -> str:
    return "-" if rows is None else f"{rows:,}"


def _plain(text: Any) -> str:
    """A text of others as text of Markdown, on one line."""
    marks = "\\`*_{}[]<>#|!~&"
    return "".join(f"\\{char}" if char in marks else char for char in printable(str(text)))


def _code(value: Any) -> str:
    """A value inside backticks."""
    return printable(str(value)).replace("`", "'")
