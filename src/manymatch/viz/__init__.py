"""Pictures."""

from manymatch.viz.matches import plot_candidates

__all__ = ["plot_candidates"]
