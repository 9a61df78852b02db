"""`fedstride node-check`: reads a node's own files and its data as the node would, and says what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confinement import support

from .node_command import check_data, checked, folders_of, reader_of, too_few
from .policy import in_words
from .policy.file_access import Access, superlink_of
from .processes.message_processes import Processes
from .settings import read

NODE_CHECK = (
    "node-check",
    "Say what a node with these options allows, and read its data as it would. It does not connect, or open the "
    "node's log and ledger. Exit code 0 if the options, files and data are in order, 2 if not.",
)


def run(arguments: Sequence[str], say: Callable[[str], None]) -> None:
    """Say what a node with these arguments allows, and whether its data can be read. It does not connect.

    Raises ConfigError for what such a node would be refused for, the data included.
    """
    settings = read(arguments, command=NODE_CHECK)
    folders = folders_of(settings)
    say(checked(settings, folders))
    for line in in_words.lines(settings.policy, settings.site, settings.trusted):
        say(line)
    # Without a scratch folder of its own: what is beside it may belong to a node that runs.
    processes = Processes(settings.limit, say, say, settings.passed)
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
    if counted is None:
        say("the data are not looked at")
    else:
        enough = f"the data: {counted.rows} rows, all as the data file says"
        say(too_few(counted, settings.policy.min_rows) or enough)
