"""`fedstride node-check`: reads a node's own files and its data as the node would, and says what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confinement import support

from .node_command import check_data, checked, folders_of, reader_of
from .policy import in_words
from .policy.file_access import Access, superlink_of
from .processes.message_processes import Processes
from .processes.site_rows import Counted
from .settings import read


def run(arguments: Sequence[str], say: Callable[[str], None]) -> None:
    """Say what a node with these arguments allows, and whether its data can be read. It does not connect.

    Raises ConfigError for what such a node would be refused for, the data included.
    """
    settings = read(arguments)
    folders = folders_of(settings)
    say(checked(settings, folders))
    for line in in_words.lines(settings.policy, settings.site, settings.trusted):
        say(line)
    processes = Processes(settings.limit, say, say, settings.passed, scratch=settings.scratch)
    superlink = superlink_of(settings.place)
    access = Access(settings.policy, support(), folders, settings.trusted or {}, superlink)
    reader = reader_of(settings, access, processes)
    if reader is None:
        return
    processes.start()
    try:
        counted = check_data(reader)
    finally:
        processes.close()
    say("the data are not looked at" if counted is None else _of_rows(counted, settings.policy.min_rows))


def _of_rows(counted: Counted, least: int) -> str:
    """What is said of data that can be read. A number below `least` is not said, as nowhere else."""
    if counted.ids >= least:
        return f"the data: {counted.rows} rows, all as the data file says"
    what = "rows" if counted.ids == counted.rows else "ids"
    return (
        f"the data: below {least} {what}, all as the data file says; this node will refuse to train, since its "
        f"policy demands at least min_rows = {least}: add {what}, or lower min_rows in the file of the policy"
    )
