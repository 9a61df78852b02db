"""What a node's own files allow, in words for the people of its site."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fedstride.tasks.data_toml.site import SiteData

from .policy_file import ASK, Policy


def lines(policy: Policy, site: SiteData | None, trusted: Iterable[str] | None) -> Iterator[str]:
    """One line for each thing that messages may do, or may not. `trusted`: the ids of keys that may sign apps."""
    any_app = "those that a signed run names" if policy.signers else "any, signed or not"
    signed = f"those that a key of these has signed: {_listed(trusted)}" if trusted else any_app
    yield f"apps: {signed}"
    yield f"runs: {_runs(policy)}"
    yield f"tasks: {_of(policy.tasks, 'any')}"
    yield from _data(policy, site)
    yield f"figures of held-out rows that may leave: {_of(policy.metrics, 'all')}, and the loss"
    yield f"records that may leave beside model and metrics: {_of(policy.records, 'all that the method needs')}"
    yield f"a description of the data (fedstride check): {_description(policy)}"
    yield f"a membership test of the training rows (model card): {_membership(policy)}"
    yield f"updates: {_protection(policy)}"
    if policy.hours is not None:
        yield f"hours: from {_time(policy.hours[0])} to {_time(policy.hours[1])}, this machine's time"
    if policy.cpu_seconds is not None:
        yield f"CPU time of a message: at most {policy.cpu_seconds} s for each of its processes"


def _data(policy: Policy, site: SiteData | None) -> Iterator[str]:
    if site is None:
        yield "data: none of this site; only those of tasks that this machine has"
        return
    yield f"data: {site.path}"
    if policy.raw_data:
        yield "apps may read the data files themselves, all of them (raw_data = true)"
    if site.dictionary is None:
        yield "what runs may name: nothing (the data file has neither [columns] nor [examples])"
    elif site.dictionary.columns:
        for name, cells in site.dictionary.columns.items():
            may = "; may be predicted" if name in site.dictionary.targets else ""
            yield f"column {name}: {cells}{', or empty' if cells.empty else ''}{may}"
    else:
        said = site.dictionary.examples
        yield f"examples: {', '.join(f'{name} = {value}' for name, value in said.items())}"
    yield (
        f"rows: at least {policy.min_rows} for training, for measuring (with fewer, no figure is said), and in "
        "each class or category of which something is said"
    )
    shares = _listed(f"{share:g}" for share in policy.holdout)
    how = "a seed that the data file names" if site.secret is None else f"the secret {site.secret}"
    part = "any part of this size" if policy.folds else "one part of this size, the same for all runs"
    yield f"shares of the rows that a run may hold out: {shares} ({part}); which rows, {how} decides"


def _runs(policy: Policy) -> str:
    if not policy.signers:
        return "any, signed or not"
    members = "" if policy.members is None else f", and that name no other nodes than those in {policy.members}"
    approval = "; each waits until fedstride node-approve allows it" if policy.approve == ASK else ""
    return f"those that one of these has signed: {_listed(policy.signers)}{members}{approval}"


def _description(policy: Policy) -> str:
    if not policy.description:
        return "may not be asked"
    if policy.noise_multiplier:
        return "may not be asked, since no noise protects it"
    return f"may be asked; each bin, class and share of it has at least {policy.min_rows} rows"


def _membership(policy: Policy) -> str:
    if not policy.membership:
        return "may not be asked"
    if policy.noise_multiplier:
        return "may not be asked, since no noise protects it"
    return (
        "may be asked; it says how well training rows can be told from held-out ones by their loss, of at least "
        f"{policy.min_rows} of each"
    )


def _protection(policy: Policy) -> str:
    if policy.clipping_norm is None:
        return "as they are"
    noise = policy.noise_multiplier
    added = "" if noise is None else f", with noise of {noise:g} times that"
    return f"cut to a length of {policy.clipping_norm:g}{added}; nothing leaves that this does not protect"


def _of(names: tuple[str, ...] | None, all_of_them: str) -> str:
    return all_of_them if names is None else _listed(names) or "none"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _time(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
