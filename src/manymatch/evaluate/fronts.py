"""What an estimator sees of a pair's candidates: caps, filter, ranks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from manymatch._validate import integer, refusal
from manymatch.associate.gms import gms_filter

if TYPE_CHECKING:
    from manymatch.evaluate.posed_graph import PosedGraph
    from manymatch.graph import AssociationGraph
    from manymatch.matcher.config import Association


@dataclasses.dataclass(frozen=True)
class Front:
    """From all candidates of a pair to those the estimator gets.

    The defaults are the paper's practical configuration: mutual 5-nearest neighbours, the first
    2048 edges, many-to-many GMS, the first 1024 of what is left.

    Parameters
    ----------
    k : int
        Largest rank of an edge.
    max_edges : int, optional
        Edges that reach the filter (N_a); None for all.
    gms : bool
        Filter by grid motion statistics.
    keep : int, optional
        Edges that reach the estimator (N_e); None for all.
    """

    k: int = 5
    max_edges: int | None = 2048
    gms: bool = True
    keep: int | None = 1024

    def __post_init__(self) -> None:
        integer(self.k, "k", 1)
        for name in ("max_edges", "keep"):
            if getattr(self, name) is not None:
                integer(getattr(self, name), name, 0)
        if not isinstance(self.gms, bool):
            raise refusal("gms", "True or False", self.gms)

    @classmethod
    def rank_one(cls, keep: int | None = 1024) -> Front:
        """Mutual nearest neighbours only, the usual 1-to-1 input."""
        return cls(1, None, gms=False, keep=keep)

    @classmethod
    def uncapped(cls, k: int) -> Front:
        """Every edge up to rank k: the graph E_k of the paper's first question."""
        return cls(k, None, gms=False, keep=None)

    @classmethod
    def of(cls, association: Association, estimator: str) -> Front:
        """Take from a configuration what an estimator sees of the candidates."""
        part = association.for_method(estimator)
        return cls(part.k, part.max_edges, bool(part.gms), part.keep)

    @classmethod
    def for_auto(cls) -> Front:
        """Leave everything to method "auto", which weighs edges instead of removing them."""
        return cls(gms=False, keep=None)

    def graph(self, posed: PosedGraph) -> AssociationGraph:
        """Cut and filter; edges keep their order."""
        graph = posed.graph.up_to_rank(self.k)
        if self.max_edges is not None:
            graph = graph.head(self.max_edges)
        if self.gms:
            graph = graph.filter(gms_filter(graph, posed.size0, posed.size1).mask)
        return graph if self.keep is None else graph.head(self.keep)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return dataclasses.asdict(self)
