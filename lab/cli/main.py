"""The command `fedstride`: registers all subcommands, those of a node too."""

from __future__ import annotations

import os

from fedstride.plain_help import PlainProgram
from fedstride.processes import exits
from node import commands as node_commands
from superlink import commands as superlink_commands

# Set before Flower is imported: by default, Flower reports usage over the network.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

from ..engine import garbage_collection
from . import certificates as certificates_group
from . import check as check_group
from . import compare as compare_group
from . import doctor as doctor_group
from . import evaluate as evaluate_group
from . import export as export_group
from . import listing, one_run
from . import nodes as nodes_group
from . import partition as partition_group
from . import plot as plot_group
from . import predict as predict_group
from . import register as register_group
from . import report as report_group
from . import reproduce as reproduce_group
from . import resume as resume_group
from . import run as run_group
from . import runs as runs_group
from . import sign as sign_group
from . import simulate as simulate_group
from . import submit as submit_group
from . import table as table_group
from . import watch as watch_group

app = PlainProgram(
    name="fedstride",
    help="Federated learning with adaptive step sizes, locally in one process and in Flower.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("check")(check_group.check)
app.command("run")(run_group.run)
app.command("resume")(resume_group.resume)
app.command("simulate")(simulate_group.simulate)
app.command("submit")(submit_group.submit)
app.command("runs")(runs_group.runs)
app.command("stop")(one_run.stop)
app.command("logs")(one_run.logs)
app.command("fetch")(one_run.fetch)
app.command("watch")(watch_group.watch)
app.command("certificates")(certificates_group.certificates)
app.command("register")(register_group.register)
app.command("nodes")(nodes_group.nodes)
superlink_commands.add_to(app)
node_commands.add_to(app)
app.add_typer(sign_group.sign, name="sign")
app.command("list")(listing.list_choices)
app.command("show")(listing.show)
app.command("partition")(partition_group.partition)
app.command("doctor")(doctor_group.doctor)
app.command("compare")(compare_group.compare)
app.command("table")(table_group.table)
app.command("plot")(plot_group.plot)
app.command("evaluate")(evaluate_group.evaluate)
app.command("predict")(predict_group.predict)
app.command("export")(export_group.export)
app.command("report")(report_group.report)
app.command("reproduce")(reproduce_group.reproduce)


def main() -> None:
    """Entry point. The exit codes are those of `exits.run`."""
    garbage_collection.begin()
    garbage_collection.end_sooner()
    try:
        exits.run(app)
    finally:
        garbage_collection.done()


if __name__ == "__main__":
    main()
