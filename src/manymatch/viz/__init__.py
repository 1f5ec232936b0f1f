"""Pictures."""

from manymatch.viz.figure import require_matplotlib
from manymatch.viz.picture import plot_candidates

__all__ = ["plot_candidates", "require_matplotlib"]
