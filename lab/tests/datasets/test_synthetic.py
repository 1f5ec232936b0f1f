import dataclasses

import numpy as np
import pytest

from manymatch_lab.datasets.synthetic import (
    CONFIGS,
    CONTROL,
    EASY,
    LOW_PARALLAX,
    ORDERING,
    PLANAR,
    SceneConfig,
    make_scene,
)

ROWS = SceneConfig(num_points=20, num_outliers=5, num_rows=3, num_hub_rows=(2, 2))


def reprojection_px(scene):
    """Distance (M, 2) of the true matches' keypoints to their projected 3D points."""
    world = scene.points3d
    moved = world @ scene.pose.R.T + scene.baseline * scene.pose.t
    c = scene.config
    centre = np.array([(c.width - 1) / 2, (c.height - 1) / 2])
    distances = []
    for side, (X, focal) in enumerate(((world, c.focal0), (moved, c.focal1))):
        assert np.all(X[:, 2] > 0)
        points = (scene.graph.points0, scene.graph.points1)[side]
        pixels = X[:, :2] / X[:, 2:] * focal + centre
        seen = points[scene.true_matches[:, side]]
        distances.append(np.linalg.norm(pixels - seen, axis=1))
    return np.stack(distances, axis=1)


@pytest.mark.parametrize("name", CONFIGS)
def test_true_matches_are_projections_of_their_points_within_the_noise(name):
    scene = make_scene(CONFIGS[name], seed=3)
    distance = reprojection_px(scene)
    sigma = scene.config.noise_px
    assert distance.max() < 6 * sigma
    # Two axes of noise: the root mean square distance is sqrt(2) sigma.
    assert np.sqrt(np.mean(distance**2)) == pytest.approx(np.sqrt(2) * sigma, rel=0.25)


def test_the_same_configuration_and_seed_give_the_same_scene():
    first, second = make_scene(ROWS, 7), make_scene(ROWS, 7)
    for field in dataclasses.fields(first):
        a, b = getattr(first, field.name), getattr(second, field.name)
        assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
    assert not np.array_equal(make_scene(ROWS, 8).graph.points0, first.graph.points0)


def test_the_control_differs_from_ordering_in_descriptors_only():
    rows, control = make_scene(ORDERING, 2), make_scene(CONTROL, 2)
    assert np.array_equal(rows.graph.points0, control.graph.points0)
    assert np.array_equal(rows.graph.points1, control.graph.points1)
    assert rows.pose == control.pose
    assert dataclasses.replace(CONTROL, rows_share_descriptor=True) == ORDERING


def test_is_true_marks_exactly_the_edges_that_are_true_matches():
    scene = make_scene(ROWS, 1)
    true = {tuple(pair) for pair in scene.true_matches.tolist()}
    expected = [tuple(edge) in true for edge in scene.graph.edges.tolist()]
    assert scene.is_true.tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_members_of_a_row_share_a_descriptor_and_lie_on_a_line_with_equal_steps():
    scene = make_scene(dataclasses.replace(ROWS, noise_px=0.0), 2)
    for row in range(5):
        looks = np.concatenate(
            (scene.descriptors0[scene.row0 == row], scene.descriptors1[scene.row1 == row])
        )
        assert (looks @ looks.T).min() > 0.95
    for row in range(3):
        members = scene.row0[scene.true_matches[:, 0]] == row
        assert np.all(scene.row1[scene.true_matches[members, 1]] == row)
        along = np.sort(scene.points3d[members] @ scene.row_direction)
        assert np.allclose(np.diff(along), np.diff(along)[0])
        offset = scene.points3d[members] - scene.points3d[members].mean(axis=0)
        across = offset - np.outer(offset @ scene.row_direction, scene.row_direction)
        assert np.abs(across).max() < 1e-9 * np.abs(scene.points3d).max()


def test_planar_scenes_are_planar_and_others_are_not():
    def flatness(config):
        points = make_scene(config, 4).points3d
        spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
        return spread[2] / spread[0]

    assert flatness(PLANAR) < 1e-12
    assert flatness(EASY) > 0.05


def test_low_parallax_scenes_are_explained_by_a_rotation_alone():
    def motion_px(config):
        scene = make_scene(config, 4)
        x0 = scene.camera0.unproject(scene.graph.points0[scene.true_matches[:, 0]])
        turned = np.column_stack((x0, np.ones(len(x0)))) @ scene.pose.R.T
        pixels = scene.camera1.project(turned[:, :2] / turned[:, 2:])
        seen = scene.graph.points1[scene.true_matches[:, 1]]
        return np.median(np.linalg.norm(pixels - seen, axis=1))

    assert make_scene(LOW_PARALLAX, 4).baseline == 0.0
    assert motion_px(LOW_PARALLAX) < 2.0
    assert motion_px(EASY) > 20.0


def test_look_alikes_push_the_true_partner_behind_rank_one():
    def share_first(config):
        scene = make_scene(config, 0)
        return np.mean(scene.graph.rank[scene.is_true] == 1)

    families = dataclasses.replace(EASY, num_points=100, family_size=5, family_spread=0.1)
    noisy = dataclasses.replace(families, descriptor_noise=0.3)
    assert share_first(EASY) > 0.95
    assert 0.05 < share_first(noisy) < 0.6


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_points", -1),
        ("num_points", 2.5),
        ("noise_px", -0.1),
        ("noise_px", float("nan")),
        ("focal0", 0.0),
        ("k", 0),
        ("max_edges", 0),
        ("hub_partners", 7),
        ("num_hub_rows", (3, 2)),
        ("num_hub_rows", (-1, 2)),
        ("depth", (0.0, 1.0)),
        ("row_depth", (9.0, 3.0)),
        ("baseline", (0.0, float("inf"))),
        ("rotation_deg", (-1.0, 1.0)),
    ],
)
def test_a_bad_field_is_named(field, value):
    with pytest.raises(ValueError, match=f"^{field} must be"):
        SceneConfig(**{field: value})


@pytest.mark.parametrize("name", ["num_points", "num_rows"])
def test_views_without_overlap_are_refused(name):
    apart = SceneConfig(num_points=0, num_outliers=0, rotation_deg=(179.0, 180.0), focal1=2000.0)
    with pytest.raises(ValueError, match=f"^{name} must be points that both cameras see"):
        make_scene(dataclasses.replace(apart, row_spacing_px=500.0, **{name: 5}), 0)
