"""Pictures."""

from manymatch.viz.figure import require_matplotlib
from manymatch.viz.pca import pca_colours, plot_pca
from manymatch.viz.picture import plot_candidates

__all__ = ["pca_colours", "plot_candidates", "plot_pca", "require_matplotlib"]
