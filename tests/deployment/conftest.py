"""A SuperLink with registered keys for each module of deployed tests; each module starts its own nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from processes import Deployment, Desk, Running, Site, answers, left_over, stop, until

LINES = 60  # of a log, at its end


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """A test that failed shows the last lines of the logs of its processes: they end and are deleted with it."""
    outcome = yield
    report = outcome.get_result()
    site = getattr(item, "funcargs", {}).get("site")
    if report.failed and site is not None:
        for file in sorted({*site.deployment.root.glob("*/log"), *site.deployment.root.glob("*.log")}):
            with contextlib.suppress(OSError):
                lines = file.read_text(errors="replace").splitlines()[-LINES:]
                report.sections.append((f"{file.relative_to(site.deployment.root)}", "\n".join(lines)))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache of prepared data for this process and all processes that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("FEDSTRIDE_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Site]:
    """A SuperLink with three registered keys and one key that is not registered."""
    root = tmp_path_factory.mktemp("site")
    with Deployment(root) as deployment:
        certificates = root / "certificates"
        hosts = ["--name", "superlink", "--name", "localhost", "--address", "127.0.0.1"]
        done = deployment.fedstride(
            "certificates", str(certificates), *hosts, "--node-names", "one,two,three,four"
        )
        assert done.returncode == 0, done.stderr
        link = deployment.superlink("superlink", certificates)
        until(lambda: answers(link), "answer of the SuperLink")
        desk = Desk(deployment, link)
        names = ("one", "two", "three")
        with ThreadPoolExecutor() as at_once:
            ids = at_once.map(lambda name: desk.register(certificates / f"{name}.pub"), names)
            registered = dict(zip(names, ids, strict=True))
        yield Site(deployment, certificates, link, desk, registered)
    until(lambda: True if not left_over(deployment.mark) else None, "end of all processes", 60.0)


@pytest.fixture
def join(site: Site) -> Iterator[Callable[..., list[Running]]]:
    """`Site.joined` for nodes that end with the test, also if it fails: the next one needs their keys."""
    joined: list[Running] = []

    def start(*arguments: Any, **options: Any) -> list[Running]:
        nodes = site.joined(*arguments, **options)
        joined.extend(nodes)
        return nodes

    yield start
    stop(*joined)
