"""The membership test of a client's own training rows, if the server asks for it and the node allows it.

The evaluation is never refused for it: where it is not made, the reply says why in one word, beside its figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedstride.messages import wire
from fedstride.tasks.evaluation.membership import tested

from ..error_replies import is_desk
from ..from_message import Work


def answer(job: Work, config: Mapping[str, Any], node_config: Mapping[str, Any]) -> dict[str, float | list[float]]:
    """What the reply says of the test; nothing if the message does not ask. The network has the model.

    It is made of the training rows and the held-out ones, if the site has at least `min_rows` of both.
    """
    if not config.get(wire.MEMBERSHIP):
        return {}
    if node_config.get(wire.MEMBERSHIP) is not True and not is_desk(node_config):
        return {wire.NOT_ALLOWED: 1}
    others = job.held_out
    if others is None or min(len(others), len(job.examples)) < job.min_rows:
        return {wire.FEW_ROWS: 1}
    test = tested(job.model, job.examples, others, job.seed, job.client_id)
    return {
        wire.MEMBERSHIP_AREA: [test.area, *(test.interval if test.interval.known else ())],
        wire.MEMBERSHIP_ROWS: [test.trained, test.others],
    }
