"""A Grid whose nodes have names, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from flwr.proto.node_pb2 import NodeInfo
from world import FaultyGrid

HOSPITALS = ("hospital-a", "hospital-b", "hospital-c", "hospital-d")


class NamedGrid(FaultyGrid):
    """Nodes with the registered names `registered`, and `stated` in their node-config, by partition id."""

    registered: ClassVar[Mapping[int, str]] = dict(enumerate(HOSPITALS))
    stated: ClassVar[Mapping[int, str]] = registered
    nodes_of_clients = 4
    extra = 0  # nodes after those of the clients, of partition 0

    def __init__(self, clock, clients, faults) -> None:
        super().__init__(clock, self.nodes_of_clients + self.extra, faults)
        self.asked: set[int] = set()
        for node, context in self._contexts.items():
            place = int(context.node_config["partition-id"])
            context.node_config["num-partitions"] = clients
            if place >= self.nodes_of_clients:
                context.node_config["partition-id"] = 0
            if place in self.stated:
                context.node_config["name"] = self.stated[place]
            self.place = {**getattr(self, "place", {}), node: place}

    def get_nodes(self) -> list[NodeInfo]:
        nodes = super().get_nodes()
        for info in nodes:
            info.name = self.registered.get(self.place.get(info.node_id, -1), "")
        return nodes

    def push_messages(self, messages):
        messages = list(messages)
        type(self).told = {*getattr(type(self), "told", set()), *(m.metadata.dst_node_id for m in messages)}
        return super().push_messages(messages)
