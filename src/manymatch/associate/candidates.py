"""Preserve: the practical front end, from descriptors to the graph the estimator takes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from manymatch._validate import FloatArray, float_array, integer
from manymatch.associate.gms import GmsResult, flag, gms_filter
from manymatch.associate.neighbours import associate
from manymatch.associate.owned import associate_owned
from manymatch.graph import AssociationGraph

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
    """What `candidates` found.

    Attributes
    ----------
    graph : AssociationGraph
        Candidates for the estimator, best first, between all keypoints that were given.
    counts : dict of str to int
        What each step kept, in the order of the steps: ``keypoints0`` and ``keypoints1``, then
        edges: ``associated`` by the operator, left ``after_cap``, ``after_gms``, and ``kept``. A
        step that is switched off keeps everything.
    gms : GmsResult or None
        What the filter said about the ``after_cap`` edges; None when it is switched off.
    """

    graph: AssociationGraph
    counts: dict[str, int]
    gms: GmsResult | None = None

    def __repr__(self) -> str:
        c = self.counts
        steps = [f"{c['associated']} associated", f"{c['after_cap']} after the cap"]
        if self.gms is not None:
            steps.append(f"{c['after_gms']} after GMS")
        steps.append(f"{c['kept']} kept")
        keypoints = f"{c['keypoints0']} x {c['keypoints1']} keypoints"
        return f"Candidates({keypoints}; edges: {' -> '.join(steps)})"


def candidates(
    points0: ArrayLike,
    points1: ArrayLike,
    desc0: ArrayLike,
    desc1: ArrayLike,
    size0: ArrayLike,
    size1: ArrayLike,
    k: int = 5,
    max_edges: int | None = 2048,
    gms: bool = True,
    keep: int | None = 1024,
    *,
    operator: str = "mutual",
    threshold: float = 4.0,
    grid: int = 20,
    scales: bool = True,
    rotations: bool = True,
    crop: bool = True,
    integer_mean: bool = True,
    owners0: ArrayLike | None = None,
    owners1: ArrayLike | None = None,
) -> Candidates:
    """Associate descriptors, cap, filter and cut: the paper's practical configuration.

    Edges keep their order throughout (rank, then similarity): the cap and the cut take the first
    ones, and the filter only removes. Method "auto" wants ``gms=False, keep=None``: it runs the
    filter itself, and an edge that the filter does not keep is worth less there, not nothing.

    Parameters
    ----------
    points0, points1 : (N0, 2) and (N1, 2) array_like
        Keypoints (x, y) in pixels; the centre of the top-left pixel is (0, 0).
    desc0, desc1 : (N0, D) and (N1, D) array_like or torch.Tensor
        Their descriptors, as `associate` takes them.
    size0, size1 : (2,) array_like
        Width and height of the images in pixels.
    k : int
        Candidates per keypoint, as in `associate`.
    max_edges : int, optional
        Edges that reach the filter; None for all.
    gms : bool
        Filter with `gms_filter`.
    keep : int, optional
        Edges of the result; None for all that are left.
    operator : {"mutual", "oneway", "union"}
        As in `associate`.
    threshold, grid, scales, rotations, crop, integer_mean
        As in `gms_filter`.
    owners0, owners1 : (M0,) and (M1,) array_like of int, optional
        Both or neither, for keypoints with several descriptors: the keypoint that each row of
        `desc0` and `desc1` belongs to, see `manymatch.associate_owned`.

    Returns
    -------
    Candidates
        The graph, and how many edges every step kept. The graph has no edges when the filter
        removed all of them.

    Raises
    ------
    ValueError
        If an argument has another shape, type or range.
    """
    pixels0 = _keypoints(points0, desc0, owners0, "0")
    pixels1 = _keypoints(points1, desc1, owners1, "1")
    use_gms = flag(gms, "gms")
    cap = None if max_edges is None else integer(max_edges, "max_edges", 0)
    cut = None if keep is None else integer(keep, "keep", 0)
    if owners0 is None or owners1 is None:
        if (owners0 is None) != (owners1 is None):
            raise ValueError("owners0 and owners1 must be given together, got one of them")
        found_edges = associate(desc0, desc1, k, operator)
    else:
        found_edges = associate_owned(desc0, owners0, desc1, owners1, k, operator)
    whole = AssociationGraph(pixels0, pixels1, *found_edges)
    capped = whole if cap is None else whole.head(cap)
    # Run also when switched off on nothing: the arguments are then checked all the same.
    subject = capped if use_gms else capped.head(0)
    found = gms_filter(
        subject, size0, size1, threshold, grid, scales, rotations, crop, integer_mean
    )
    left = capped.filter(found.mask) if use_gms else capped
    graph = left if cut is None else left.head(cut)
    counts = {
        "keypoints0": len(pixels0),
        "keypoints1": len(pixels1),
        "associated": whole.num_edges,
        "after_cap": capped.num_edges,
        "after_gms": left.num_edges,
        "kept": graph.num_edges,
    }
    return Candidates(graph, counts, found if use_gms else None)


def _keypoints(
    points: ArrayLike, desc: ArrayLike, owners: ArrayLike | None, image: str
) -> FloatArray:
    """Check keypoints, one per descriptor unless descriptors have owners."""
    array = float_array(points, f"points{image}", "an (N, 2) array of pixels", (None, 2))
    # Tensors on a GPU have a shape as well, and stay where they are.
    shape = np.shape(desc)
    if owners is None and shape and shape[0] != len(array):
        raise ValueError(
            f"desc{image} must have one row per keypoint ({len(array)}), got shape {tuple(shape)}"
        )
    return array
