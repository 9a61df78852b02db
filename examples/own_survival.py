"""A survival task: the risk of an event from a table with a column of times and one of events.

fedstride run parts=examples/own_survival.py task=lung model=mlp partition=own clients=2 \
    partition.files=[a.csv,b.csv]
"""

from typing import Annotated

from fedstride import Setting, part
from fedstride.tasks.datasets.nodes import own_table
from fedstride.tasks.missing import RULES


@part(task="lung")
def lung(*, missing: Annotated[str, Setting("an empty cell: an error, mean or median", options=RULES)] = "mean"):
    """How long do patients live, from three findings? `months` to death, or to the last visit if `died` is 0."""
    columns = ["age", "stage", "sex=female|male"]
    return own_table(columns=columns, target=["months", "died"], kind="survival", missing=missing)
