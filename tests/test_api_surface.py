"""The public names and signatures that outside programs are written against."""

import dataclasses
import inspect

import pytest

import manymatch
import manymatch_lab.datasets

PUBLIC = {
    "AbsolutePose", "AbsolutePoseEstimate", "Alignment", "Alternative", "AssociationGraph",
    "Camera", "Candidates", "Confidence", "Estimate", "FundamentalEstimate", "GmsResult",
    "HomographyEstimate", "LocalizedImage", "MatchResult", "Matcher", "MatcherConfig", "Options",
    "Reconstruction", "RelativePose", "RelativePoseEstimate", "RigidEstimate", "Score",
    "SimilarityEstimate", "SourceConfig",
    "__version__", "align", "assess", "associate", "candidates", "compat",
    "estimate_absolute_pose", "estimate_fundamental", "estimate_homography", "estimate_many",
    "estimate_relative_pose", "estimate_rigid_transform", "estimate_similarity", "features",
    "gms_filter", "io", "localize", "match", "merge_coincident", "merge_graphs", "pose_auc",
    "pose_error_deg", "read_matches", "reconstruct", "run_batch", "score_pose", "viz",
}  # fmt: skip

# Parameters with their defaults.
SIGNATURES = {
    "associate": "desc0, desc1, k=5, operator='mutual', max_edges=None",
    "merge_coincident": "graph, tolerance_px=0.0",
    "pose_auc": "errors_deg, thresholds=(5, 10, 20)",
    "pose_error_deg": "pose, R_true, t_true",
    "merge_graphs": "graphs, names=None, tolerance_px=None",
    "gms_filter": (
        "graph, size0, size1, threshold=4.0, grid=20, scales=True, rotations=True, "
        "crop=True, integer_mean=True"
    ),
    "candidates": (
        "points0, points1, desc0, desc1, size0, size1, k=5, method='auto', "
        "operator='mutual', max_edges=2048, gms=None, keep='method', owners0=None, "
        "owners1=None, working0=None, working1=None"
    ),
    "estimate_absolute_pose": (
        "graph, camera, method='auto', options=None, proposals=None, settings"
    ),
    "estimate_fundamental": "graph, method='auto', options=None, proposals=None, settings",
    "estimate_homography": (
        "graph, method='auto', options=None, proposals=None, model='homography', settings"
    ),
    "align": (
        "image0, image1, model='homography', preset=None, longest0=None, longest1=None, settings"
    ),
    "estimate_many": "problems, method='auto', options=None, threads=0, settings",
    "estimate_relative_pose": (
        "graph, camera0, camera1, method='auto', options=None, proposals=None, "
        "working_scale=None, shared_focal=None, settings"
    ),
    "estimate_rigid_transform": (
        "graph, threshold, method='auto', options=None, proposals=None, viewpoints=None, settings"
    ),
    "estimate_similarity": (
        "graph, threshold, method='auto', options=None, proposals=None, viewpoints=None, settings"
    ),
    "read_matches": "path",
    "score_pose": "graph, camera0, camera1, pose, options=None, settings",
    "AssociationGraph": (
        "points0, points1, edges, similarity=None, rank=None, source=None, source_names=None, "
        "prior=None"
    ),
    "AbsolutePose": "R, t",
    "RelativePose": "R, t",
    "Options": (
        "threshold_px=1.0, min_iterations=1000, max_iterations=100000, "
        "confidence=0.9999, safety=3.0, pool_size=100, q=0.3, delta=0.01, guidance=0.0, "
        "seed=0, threads=0, disable=()"
    ),
}
MEMBERS = {
    "AssociationGraph": "degrees filter head load num_edges save up_to_rank",
    "Camera": "from_matrix",
    "Candidates": "counts gms graph",
    "GmsResult": "mask num_kept rotation scale",
    "AbsolutePose": "R center inverse matrix t",
    "RelativePose": "R essential inverse matrix t",
    "Estimate": (
        "cardinality failure hcm inliers iterations match_probability matches model num_inliers "
        "pooled refinements success timing to_dict to_row worst_pooled"
    ),
    "AbsolutePoseEstimate": "camera0 focal_determined focal_sd_px noise_px pose threshold_px",
    "FundamentalEstimate": "fundamental noise_px noise_sd_px threshold_px",
    "HomographyEstimate": "homography noise_px noise_sd_px threshold_px",
    "RelativePoseEstimate": (
        "camera0 camera1 focal_determined focal_sd_px low_parallax noise_px noise_sd_px "
        "parallax_deg pose threshold_px"
    ),
    "RigidEstimate": "noise noise_sd threshold transform",
    "SimilarityEstimate": "noise noise_sd scale threshold transform",
    "Score": "cardinality hcm inliers num_inliers",
}


def test_public_names_are_there_documented_and_suggested():
    assert set(dir(manymatch)) == set(manymatch.__all__) == PUBLIC
    for name in PUBLIC - {"__version__"}:
        assert inspect.getdoc(getattr(manymatch, name)), name
    with pytest.raises(AttributeError, match="'Mather'") as error:
        manymatch.Mather  # noqa: B018
    # What Python's own suggestion is made of.
    assert (error.value.name, error.value.obj) == ("Mather", manymatch)
    assert "manymatch.match(" in manymatch.__doc__


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    parameters = inspect.signature(getattr(manymatch, name)).parameters.values()
    assert SIGNATURES[name] == ", ".join(
        p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters
    )


@pytest.mark.parametrize("name", MEMBERS)
def test_members(name):
    cls = getattr(manymatch, name)
    fields = {f.name for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    assert set(MEMBERS[name].split()) <= fields | set(dir(cls))


def test_values_are_frozen():
    graphs = ("AssociationGraph", "Candidates", "GmsResult")
    for name in (*graphs, "Estimate", "Options", "AbsolutePose", "RelativePose", "Score"):
        assert getattr(manymatch, name).__dataclass_params__.frozen


def test_data_set_names():
    assert set(manymatch_lab.datasets.__all__) == {
        "Dataset", "DatasetInfo", "DepthView", "Layout", "LayoutPart", "Pair", "check",
        "exhaustive_pairs", "info", "load", "names", "read_pairs", "synthetic",
    }  # fmt: skip
    assert list(inspect.signature(manymatch_lab.datasets.load).parameters)[:2] == ["name", "root"]


def test_interchange_names():
    assert set(manymatch.io.__all__) == {
        "AlternativePose", "ColmapDatabaseWriter", "ColmapImage", "ColmapWriter", "HlocWriter",
        "ImageRecord", "Pair",
        "PairMatches", "demo_pair", "exhaustive_pairs",
        "exif_focal", "graph_from_matches", "load_graph", "load_image", "read_associations_csv",
        "read_cameras", "read_hloc", "read_images", "read_matches_npz",
        "read_pairs",
        "read_superglue", "write_associations_csv",
        "write_matches_npz",
    }  # fmt: skip
