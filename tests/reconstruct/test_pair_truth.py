"""Truth of pairs on graphs whose true poses are known."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manymatch.geometry.camera import Camera
from manymatch.geometry.pose import RelativePose, pose_error_deg
from manymatch.io.matches import ImageRecord
from manymatch.reconstruct import pair_evidence, pair_truth
from manymatch.reconstruct.pair_graph import PairGraph, Photo, PhotoPair
from manymatch.reconstruct.pair_truth import PairTruth, judge_pairs
from tests.support.scenes import arc

if TYPE_CHECKING:
    from numpy.typing import NDArray

CAMERA = Camera("PINHOLE", 640, 480, [600, 600, 319.5, 239.5])
NO_MATCHES = np.zeros((0, 2), np.int64)


def turned(axis: int, angle: float) -> NDArray[np.float64]:
    """Rotation about a coordinate axis."""
    c, s = np.cos(angle), np.sin(angle)
    R = np.eye(3)
    k, m = [k for k in range(3) if k != axis]
    R[k, k], R[k, m], R[m, k], R[m, m] = c, -s, s, c
    return R


def random_pose(rng: np.random.Generator) -> RelativePose:
    R, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return RelativePose(R * np.linalg.det(R), rng.normal(size=3))


class Drum:
    """Cameras all around a drum whose points are on its wall, some of them equal on both sides.

    With `equal`, that share of the points looks the same as their counterpart on the other side,
    and a pair whose images show opposite sides is matched, and posed, as if they were one side.
    """

    def __init__(
        self,
        count: int,
        seed: int = 0,
        equal: float = 0.0,
        size: int = 500,
        camera: Camera = CAMERA,
    ) -> None:
        rng = np.random.default_rng(seed)
        angle = rng.uniform(0, np.pi, size)
        angle = np.concatenate([angle, angle + np.pi])
        wall = np.stack([np.sin(angle), np.tile(rng.uniform(-1, 1, size), 2), np.cos(angle)], 1)
        wall *= rng.uniform(0.9, 1.1, size)[np.arange(2 * size) % size, None]
        same = rng.random(size) < equal
        # What a point looks like: its number, or that of its counterpart.
        self.look = np.arange(2 * size)
        self.look[size:][same] = np.flatnonzero(same)
        self.R, self.t, self.seen, photos = [], [], [], []
        for k in range(count):
            R = turned(0, 0.1 * rng.normal()) @ turned(
                1, 2 * np.pi * (k + 0.3 * rng.random()) / count
            )
            t = np.array([0.05 * rng.normal(), 0.0, 4.0 + 0.3 * rng.random()])
            own = wall @ R.T + t
            towards = -(own * (wall @ R.T)).sum(axis=1)
            visible = np.flatnonzero((towards > 1.2) & (rng.random(2 * size) < 0.9))
            pixels = camera.project(own[visible, :2] / own[visible, 2:])
            self.R.append(R)
            self.t.append(t)
            self.seen.append(visible)
            pixels += rng.normal(0.0, 0.3, pixels.shape)
            photos.append(Photo(ImageRecord(f"{k:03d}.jpg", camera=camera), pixels))
        self.photos, self.rng = tuple(photos), rng

    def pose(self, i: int, j: int, half: float = 0.0) -> RelativePose:
        """True relative pose, or with `half` = 1 that to camera j on the opposite side."""
        turn = turned(1, np.pi * half)
        R = self.R[j] @ turn @ self.R[i].T
        return RelativePose(R, self.t[j] - R @ self.t[i])

    def pair(self, i: int, j: int) -> tuple[PhotoPair | None, bool]:
        """What matching says of two images, and whether it is true."""
        places = [{look: n for n, look in enumerate(self.look[self.seen[k]])} for k in (i, j)]
        found = sorted(places[0].keys() & places[1].keys())
        matches = np.array([[places[0][look], places[1][look]] for look in found], np.int64)
        matches = matches[self.rng.random(len(matches)) < 0.8] if found else NO_MATCHES
        points = [self.seen[k][matches[:, s]] for s, k in enumerate((i, j))]
        right = points[0] == points[1]
        true = right.sum() * 2 >= len(matches)
        matches = matches[right if true else ~right]
        pose = self.pose(i, j, half=0.0 if true else 1.0)
        return (pair(i, j, pose, matches) if len(matches) >= 15 else None), bool(true)

    def graph(self) -> tuple[PairGraph, NDArray[np.bool_]]:
        """All pairs that are matched, and which are true."""
        number = len(self.photos)
        every = [self.pair(i, j) for i in range(number) for j in range(i + 1, number)]
        kept = [(found, true) for found, true in every if found is not None]
        truth = np.array([true for _, true in kept])
        return PairGraph(self.photos, tuple(found for found, _ in kept)), truth

    def lies(self, graph: PairGraph, count: int) -> tuple[PairGraph, NDArray[np.bool_]]:
        """Add pairs of images that show nothing in common, with random matches and poses."""
        known = {(p.first, p.second) for p in graph.pairs}
        number = len(self.photos)
        free = [(i, j) for i in range(number) for j in range(i + 1, number) if (i, j) not in known]
        added = []
        for k in self.rng.permutation(len(free))[:count]:
            i, j = free[k]
            sizes = len(self.seen[i]), len(self.seen[j])
            matches = np.stack([self.rng.permutation(size)[:60] for size in sizes], axis=1)
            added.append(pair(i, j, random_pose(self.rng), matches))
        truth = np.arange(len(graph.pairs) + len(added)) < len(graph.pairs)
        return PairGraph(graph.photos, (*graph.pairs, *added)), truth


def pair(
    i: int, j: int, pose: RelativePose | None, matches: NDArray[np.int64] = NO_MATCHES
) -> PhotoPair:
    return PhotoPair(i, j, pose, matches, np.ones(len(matches)), 0.95, 3.0)


def verdicts(graph: PairGraph) -> NDArray[np.bool_]:
    return np.array([verdict.true for verdict in judge_pairs(graph)])


def without_matches(graph: PairGraph) -> PairGraph:
    pairs = (dataclasses.replace(p, matches=NO_MATCHES) for p in graph.pairs)
    return PairGraph(graph.photos, tuple(pairs))


def renamed(graph: PairGraph, order: NDArray[np.int64], swap: NDArray[np.bool_]) -> PairGraph:
    """Renumber the photographs and exchange the images of some pairs."""
    photos = tuple(graph.photos[k] for k in np.argsort(order))
    pairs = []
    for old, swapped in zip(graph.pairs, swap, strict=True):
        first, second = int(order[old.first]), int(order[old.second])
        new = dataclasses.replace(old, first=first, second=second)
        if swapped and old.pose is not None:
            pose, matches = old.pose.inverse(), old.matches[:, ::-1]
            new = dataclasses.replace(new, first=second, second=first, pose=pose, matches=matches)
        pairs.append(new)
    return PairGraph(photos, tuple(pairs))


def test_random_lies_are_refused_and_true_pairs_accepted() -> None:
    drum = Drum(16)
    graph, truth = drum.lies(drum.graph()[0], 40)
    assert truth.sum() > 40
    assert (~truth).sum() == 40
    assert (verdicts(graph) == truth).all()


def test_without_lies_nothing_is_refused() -> None:
    graph, truth = Drum(14, seed=1).graph()
    assert truth.all()
    judged = judge_pairs(graph)
    assert all(verdict.true for verdict in judged)
    assert min(verdict.probability for verdict in judged) > 0.5


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_lies_that_agree_with_each_other_do_not_fold_an_object(seed: int) -> None:
    graph, truth = Drum(20, seed=seed, equal=0.6).graph()
    # As many lies as true pairs, and all of them one wrong pose of the object.
    assert (~truth).sum() >= 0.8 * truth.sum()
    assert (verdicts(graph) == truth).all()


@pytest.mark.parametrize(("count", "equal"), [(9, 0.6), (10, 0.6), (14, 0.8)])
def test_few_images_of_equal_sides_do_not_fold_an_object(
    monkeypatch: pytest.MonkeyPatch, count: int, equal: float
) -> None:
    monkeypatch.setattr(pair_truth, "find_order", lambda *_: None)
    graph, truth = Drum(count, equal=equal).graph()
    assert (~truth).sum() >= truth.sum()
    assert (verdicts(graph) == truth).all()
    # The world with which most links agree, without stricter ones, is the folded one.
    monkeypatch.setattr(pair_truth, "_LEVELS", pair_truth._LEVELS[:1])
    assert verdicts(graph)[~truth].mean() > 0.5


def test_photographs_in_their_order_do_not_fold_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_truth, "_LEVELS", pair_truth._LEVELS[:1])
    graph, truth = Drum(12, equal=0.6).graph()
    assert (verdicts(graph) == truth).all()
    # Shuffled photographs follow each other by chance, which counts for nothing.
    order = np.random.default_rng(0).permutation(12)
    shuffled = renamed(graph, order, np.zeros(len(graph.pairs), bool))
    assert order_of(shuffled) is None
    assert verdicts(shuffled)[~truth].mean() > 0.5


def test_steady_motion_shows_the_order_where_neighbours_have_no_more_matches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pair_truth, "_LEVELS", pair_truth._LEVELS[:1])
    monkeypatch.setattr(pair_truth, "_ORDERED", 2.0)
    drum = Drum(12, equal=0.6)
    graph, truth = drum.graph()
    assert (verdicts(graph) == truth).all()
    order = order_of(graph)
    assert order is not None
    assert len(order.first) == 0
    # Three neighbours are not matched: the object is not folded there either.
    gone = [(0, 1), (4, 5), (7, 8)]
    kept = [k for k, p in enumerate(graph.pairs) if (p.first, p.second) not in gone]
    graph, truth = PairGraph(graph.photos, tuple(graph.pairs[k] for k in kept)), truth[kept]
    order = order_of(graph)
    assert order is not None
    assert order.first.tolist() == [0, 4, 7]
    guess, steps = RelativePose(order.R, order.t), [drum.pose(k, k + 1) for k in range(11)]
    assert max(pose_error_deg(guess, step.R, step.t) for step in steps) < 40.0
    assert (verdicts(graph) == truth).all()
    # Without these steps it is.
    monkeypatch.setattr(pair_truth, "_STEADY", 100.0)
    assert order_of(graph) is None
    assert verdicts(graph)[~truth].mean() > 0.5


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_order_is_that_of_the_photographs_whichever_image_of_a_pair_is_first(seed: int) -> None:
    graph, _ = Drum(12, equal=0.6).graph()
    swap = np.random.default_rng(seed).random(len(graph.pairs)) < 0.5
    one, two = order_of(graph), order_of(renamed(graph, np.arange(12), swap))
    assert one is not None
    assert two is not None
    np.testing.assert_array_equal(one.near, two.near)
    np.testing.assert_array_equal(one.first, two.first)
    np.testing.assert_allclose(one.R, two.R, atol=1e-12)
    np.testing.assert_allclose(one.t, two.t, atol=1e-12)


def test_guessed_step_does_not_cut_a_scene_that_links_hold_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drum = Drum(12, seed=1)
    near = [(i, j) for i in range(12) for j in range(i + 1, 12) if j - i <= 3 and (i, j) != (5, 6)]
    pairs = tuple(pair(i, j, drum.pose(i, j)) for i, j in near)
    evidence = pair_evidence.gather_evidence(PairGraph(drum.photos, pairs))
    across = np.array([(i < 6) != (j < 6) for i, j in near])
    follows = np.array([j - i == 1 for i, j in near])
    back = RelativePose(turned(1, np.radians(-60.0)), np.array([1.0, 0.0, 0.0]))
    order = pair_truth.Order(follows, np.array([5]), back.R, back.t)
    # Where links across are doubtful, the step turns one half by 90 degrees.
    doubtful, clear = np.where(across, 2.0, 3.0), np.full(len(near), 3.0)
    turned_half = pair_truth._settle_in_order(evidence, doubtful, 12, order)
    assert np.degrees(turned_half.turn).max() > 60.0
    assert pair_truth.find_world(evidence, doubtful, 12, order).turn_deg.max() > 60.0
    # A search that stops there does not count where they are clear.
    monkeypatch.setattr(pair_truth, "_settle_in_order", lambda *_: turned_half)
    assert pair_truth.find_world(evidence, clear, 12, order).turn_deg.max() < 1.0


def order_of(graph: PairGraph) -> pair_truth.Order | None:
    return pair_truth.find_order(graph, pair_evidence.gather_evidence(graph))


def test_clear_link_that_is_a_little_off_does_not_bend_the_world() -> None:
    drum = Drum(12, seed=1)
    near = [(i, j) for i in range(12) for j in range(i + 1, 12) if j - i <= 3]
    off = near.index((4, 7))
    pairs = [pair(i, j, drum.pose(i, j)) for i, j in near]
    exact = drum.pose(4, 7)
    bent = RelativePose(turned(1, np.radians(5.0)) @ exact.R, exact.t)
    pairs[off] = dataclasses.replace(pairs[off], pose=bent)
    evidence = pair_evidence.gather_evidence(PairGraph(drum.photos, tuple(pairs)))
    log_odds = np.where(np.arange(len(near)) == off, 6.0, -0.5)
    # The search turns a part of the images by all of the 5 degrees; the average shares them out.
    assert pair_truth.find_world(evidence, log_odds, 12).turn_deg.max() < 3.0


def test_one_clear_lie_does_not_outvote_several_true_pairs() -> None:
    drum = Drum(12, seed=1)
    near = [(i, j) for i in range(12) for j in range(i + 1, 12) if j - i <= 3]
    pairs = [pair(i, j, drum.pose(i, j)) for i, j in near]
    lie = pair(0, 8, RelativePose(turned(1, np.radians(80.0)), np.array([1.0, 0.0, 0.0])))
    evidence = pair_evidence.gather_evidence(PairGraph(drum.photos, (*pairs, lie)))
    # Two halves of clear pairs, joined by six that are less clear than the lie.
    log_odds = np.array([*(3.0 if (i < 6) == (j < 6) else 0.8 for i, j in near), 2.5])
    assert (log_odds == 0.8).sum() == 6
    turn_deg = pair_truth.find_world(evidence, log_odds, 12).turn_deg
    assert turn_deg[-1] > 45.0
    assert turn_deg[:-1].max() < 1.0


def test_two_doubtful_lies_that_agree_do_not_outvote_several_sure_pairs() -> None:
    drum = Drum(12, seed=1)
    near = [(i, j) for i in range(12) for j in range(i + 1, 12) if j - i <= 3]
    pairs = [pair(i, j, drum.pose(i, j)) for i, j in near]
    R, t = turned(1, np.radians(80.0)), np.array([3.0, 0.0, 0.0])
    step = drum.R[9] @ drum.R[8].T
    agreeing = RelativePose(step @ R, step @ (t - drum.t[8]) + drum.t[9])
    lies = [pair(0, 8, RelativePose(R, t)), pair(0, 9, agreeing)]
    log_odds = np.array([*(3.0 if (i < 6) == (j < 6) else 0.8 for i, j in near), 2.5, 2.5])

    def turn_of_lies(own: float) -> float:
        doubted = [dataclasses.replace(lie, log_odds=own) for lie in lies]
        evidence = pair_evidence.gather_evidence(PairGraph(drum.photos, (*pairs, *doubted)))
        return float(pair_truth.find_world(evidence, log_odds, 12).turn_deg[-2:].min())

    assert turn_of_lies(2.0) > 45.0
    # Lies of which matching is as sure as of the others are taken for the stricter world.
    assert turn_of_lies(3.0) < 5.0


def test_without_matches_the_object_is_folded() -> None:
    # The poses alone do not tell the sides apart, so that a test above shows what points do.
    graph, truth = Drum(20, equal=0.6).graph()
    assert verdicts(without_matches(graph))[~truth].any()


def test_chain_without_triangles_is_accepted() -> None:
    drum = Drum(16, seed=2)
    graph, _ = drum.graph()
    chain = tuple(p for p in graph.pairs if p.second - p.first == 1)
    assert len(chain) == 15
    assert verdicts(PairGraph(graph.photos, chain)).all()
    assert verdicts(without_matches(PairGraph(graph.photos, chain))).all()


def test_two_components_are_judged_each_by_itself() -> None:
    parts = []
    for seed in (3, 4):
        drum = Drum(12, seed=seed)
        parts.append(drum.lies(drum.graph()[0], 12))
    (one, true_one), (two, true_two) = parts
    moved = (dataclasses.replace(p, first=p.first + 12, second=p.second + 12) for p in two.pairs)
    both = PairGraph((*one.photos, *two.photos), (*one.pairs, *moved))
    truth = np.concatenate([true_one, true_two])
    assert (verdicts(both) == truth).all()


@pytest.mark.parametrize("matches", [True, False])
def test_order_of_images_does_not_matter(matches: bool) -> None:
    drum = Drum(12, seed=5, equal=0.4)
    graph, _ = drum.lies(drum.graph()[0], 15)
    graph = graph if matches else without_matches(graph)
    rng = np.random.default_rng(0)
    other = renamed(graph, rng.permutation(12), rng.random(len(graph.pairs)) < 0.5)
    first, second = (np.array([v.probability for v in judge_pairs(g)]) for g in (graph, other))
    np.testing.assert_allclose(first, second, atol=0.01)


def test_is_a_function_of_the_graph() -> None:
    drum = Drum(10, seed=6)
    graph, _ = drum.lies(drum.graph()[0], 10)
    assert judge_pairs(graph) == judge_pairs(graph)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(6, 14), st.floats(0.0, 0.3))
def test_poses_alone_tell_random_lies(seed: int, number: int, share: float) -> None:
    drum, rng = Drum(number, seed=seed), np.random.default_rng(seed)
    ends = [(i, j) for i in range(number) for j in range(i + 1, number)]
    truth = rng.random(len(ends)) >= share
    # An image needs some true pairs.
    truth |= [j - i in (1, 2, number - 1) for i, j in ends]
    poses = (
        drum.pose(i, j) if true else random_pose(rng)
        for (i, j), true in zip(ends, truth, strict=True)
    )
    pairs = tuple(pair(i, j, pose) for (i, j), pose in zip(ends, poses, strict=True))
    found = verdicts(PairGraph(drum.photos, pairs))
    assert found[truth].mean() > 0.95
    assert not found[~truth].any()


def test_wrong_direction_with_right_rotation_is_refused() -> None:
    drum = Drum(12, seed=7)
    graph, _ = drum.graph()
    wrong = next(k for k, p in enumerate(graph.pairs) if p.second - p.first == 2)
    old = graph.pairs[wrong]
    assert old.pose is not None
    pose = RelativePose(old.pose.R, -old.pose.t)
    pairs = [*graph.pairs]
    pairs[wrong] = dataclasses.replace(old, pose=pose)
    judged = judge_pairs(PairGraph(graph.photos, tuple(pairs)))
    assert [k for k, verdict in enumerate(judged) if not verdict.true] == [wrong]
    assert "direction" in judged[wrong].reason


def test_pair_that_is_turned_too_far_is_refused() -> None:
    graph, _ = Drum(12, seed=7).graph()
    wrong = next(k for k, p in enumerate(graph.pairs) if p.second - p.first == 2)
    old = graph.pairs[wrong]
    assert old.pose is not None
    pose = RelativePose(turned(0, np.radians(12.0)) @ old.pose.R, old.pose.t)
    pairs = [*graph.pairs]
    pairs[wrong] = dataclasses.replace(old, pose=pose)
    judged = judge_pairs(PairGraph(graph.photos, tuple(pairs)))
    assert [k for k, verdict in enumerate(judged) if not verdict.true] == [wrong]
    assert "rotation is 12° off" in judged[wrong].reason


def test_untrusted_pair_that_fits_is_accepted() -> None:
    graph, _ = Drum(12, seed=8).graph()
    low = dataclasses.replace(graph.pairs[3], probability=0.1, log_odds=-2.2, trusted=False)
    pairs = (*graph.pairs[:3], low, *graph.pairs[4:])
    assert judge_pairs(PairGraph(graph.photos, pairs))[3].true


def test_reasons() -> None:
    drum = Drum(12, seed=9)
    graph, _ = drum.lies(drum.graph()[0], 10)
    few = pair(0, 6, random_pose(np.random.default_rng(0)), np.tile(np.arange(9)[:, None], 2))
    kept = [p for p in graph.pairs if (p.first, p.second) not in ((0, 6), (1, 7))]
    judged = judge_pairs(PairGraph(graph.photos, (few, pair(1, 7, None), *kept)))
    assert judged[0] == PairTruth(0.0, False, "refused: 9 matches, fewer than 15")  # noqa: FBT003
    assert judged[1] == PairTruth(0.0, False, "refused: no pose was found")  # noqa: FBT003
    for verdict in judged[2:]:
        assert verdict.true == (verdict.probability >= 0.5)
        assert verdict.reason.startswith("accepted: " if verdict.true else "refused: ")
    reasons = {verdict.reason for verdict in judged}
    assert any("° off what" in reason for reason in reasons if "refused" in reason)
    assert any("third images say" in reason for reason in reasons if "accepted" in reason)


def test_missing_points_count_against_a_pair_that_nothing_else_contradicts() -> None:
    drum = Drum(16, seed=10)
    graph, _ = drum.graph()
    # Image 15 is matched only once, and the link has few of the points that others have there.
    kept = tuple(p for p in graph.pairs if 15 not in (p.first, p.second))
    chosen = drum.rng.permutation(len(drum.seen[4]))[:20]
    matches = np.stack([chosen, np.arange(20)], axis=1)
    whole = PairGraph(graph.photos, (*kept, pair(4, 15, drum.pose(4, 5), matches)))
    found, missing = pair_evidence.gather_evidence(whole).cells.T
    assert missing[-1] > 2 * found[-1]
    assert missing[-1] / found[-1] > 3 * np.median(missing[:-1] / found[:-1])
    judged = judge_pairs(whole)
    assert all(verdict.true for verdict in judged[:-1])
    assert judged[-1].probability < min(verdict.probability for verdict in judged[:-1])


def front(jumping: float) -> PairGraph:
    """Two photographs of a front, a share of whose matches jump one or two windows aside."""
    rng = np.random.default_rng(0)
    places = rng.uniform(-1.0, 1.0, (300, 3)) * [4.0, 3.0, 0.0]
    R, t, away = turned(1, 0.3), np.array([-2.0, 0.0, 10.0]), np.array([0.0, 0.0, 10.0])
    window = np.where(rng.random(300) < jumping, rng.choice([-2.0, -1.0, 1.0, 2.0], 300), 0.0)
    here, there = places + away, (places + window[:, None] * [1.3, 0.0, 0.0]) @ R.T + t
    photos = tuple(
        Photo(ImageRecord(name, camera=CAMERA), CAMERA.project(x[:, :2] / x[:, 2:]))
        for name, x in (("0.jpg", here), ("1.jpg", there))
    )
    matches = np.tile(np.arange(300)[:, None], 2)
    return PairGraph(photos, (pair(0, 1, RelativePose(R, t - R @ away), matches),))


def test_matches_that_jump_between_windows_count_against_a_pair_without_third_images() -> None:
    shares = (0.0, 0.05, 0.3, 0.8)
    evidence = [pair_evidence.gather_evidence(front(share)) for share in shares]
    scattered = [float(one.scattered[0]) for one in evidence]
    assert scattered[:2] == [0.0, 0.0]
    assert 0.5 < scattered[2] <= scattered[3]
    right, _, _, wrong = (judge_pairs(front(share))[0] for share in shares)
    assert right.true
    odds = [one.probability / (1.0 - one.probability) for one in (right, wrong)]
    assert odds[1] < 0.2 * odds[0]
    world = pair_truth.find_world(evidence[3], np.array([-1.0]), 2)
    reason = pair_truth._reason(evidence[3], world, 0, true=False)
    assert reason == "refused: most of its matches are not where matches beside them say"


@given(seed=st.integers(0, 1000), number=st.integers(9, 40))
@settings(max_examples=30, deadline=None)
def test_places_by_neighbours_agree_with_least_squares_one_by_one(seed: int, number: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.random((number, 2))
    b = a @ rng.normal(size=(2, 2)) + rng.normal(size=2)
    b[rng.random(number) < 0.3] += 0.1
    b += rng.normal(0.0, 0.002, b.shape)
    aside = 0
    for k in range(number):
        near = np.argsort(((a - a[k]) ** 2).sum(axis=1))[1:9]
        fitted = np.linalg.lstsq(np.c_[a[near] - a[k], np.ones(8)], b[near], rcond=None)[0]
        aside += np.sqrt(((fitted[2] - b[k]) ** 2).sum()) > 1 / 128
    assert abs(pair_evidence._aside(a, b) - aside) <= 1


def test_keypoints_at_one_place_are_no_reason_to_fail() -> None:
    assert pair_evidence._aside(np.zeros((20, 2)), np.zeros((20, 2))) == 0


def test_keypoints_without_a_ray_do_no_harm() -> None:
    # So far out, the distortion of this lens has no inverse.
    lens = Camera("SIMPLE_RADIAL", 640, 480, [600, 319.5, 239.5, -0.05])
    far = np.array([[5000.0, 239.5]])
    assert np.isnan(lens.unproject(far)).all()
    graph, _ = Drum(12, seed=1, camera=lens).graph()
    photos = tuple(
        dataclasses.replace(photo, points=np.concatenate([photo.points, far]))
        for photo in graph.photos
    )
    last = [len(photo.points) - 1 for photo in photos]
    pairs = tuple(
        dataclasses.replace(p, matches=np.vstack([p.matches, [last[p.first], last[p.second]]]))
        for p in graph.pairs
    )
    assert verdicts(PairGraph(photos, pairs)).all()


def test_nothing_to_judge() -> None:
    assert judge_pairs(PairGraph((), ())) == []
    photos = Drum(3).photos
    assert judge_pairs(PairGraph(photos, ())) == []
    single = judge_pairs(PairGraph(photos, (pair(0, 1, RelativePose(np.eye(3), [1, 0, 0])),)))
    assert [verdict.true for verdict in single] == [True]


def test_refuses_what_is_no_graph() -> None:
    with pytest.raises(ValueError, match="graph must be a PairGraph, got 'pairs'"):
        judge_pairs("pairs")  # type: ignore[arg-type]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12))
def test_sparse_least_squares_agrees_with_dense(seed: int, number: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 3 * number))
    i, j = rng.integers(0, number, (2, count))
    i, j = i[i != j], j[i != j]
    value, weight = rng.normal(size=(len(i), 3)), rng.uniform(0.1, 2.0, len(i))
    x = pair_truth._solve(i, j, value, weight, number)
    A = np.zeros((len(i), number))
    A[np.arange(len(i)), j] += 1.0
    A[np.arange(len(i)), i] -= 1.0
    root = np.sqrt(weight)[:, None]
    dense = np.linalg.lstsq(root * A, root * value, rcond=None)[0]
    np.testing.assert_allclose(x[j] - x[i], A @ dense, atol=1e-6)


def test_pair_in_doubt_does_not_make_the_world():
    """Third images may speak for a pair that matching alone doubts; a trusted one counts more."""
    scene = arc(number=3)
    pairs = list(scene.graph.pairs)
    doubted = [(pair.first, pair.second) for pair in pairs].index((0, 2))
    angle = np.radians(30.0)
    turn = np.array(
        [[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]]
    )
    lie = RelativePose(turn @ pairs[doubted].pose.R, turn @ pairs[doubted].pose.t)
    pairs[doubted] = dataclasses.replace(pairs[doubted], pose=lie, log_odds=-3.0, trusted=False)
    graph = dataclasses.replace(scene.graph, pairs=tuple(pairs))
    evidence = pair_evidence.gather_evidence(graph)
    log_odds = np.full(3, 0.5)
    log_odds[doubted] = 4.0
    world = pair_truth.find_world(evidence, log_odds, 3)
    assert world.turn_deg[doubted] > 20.0
    assert np.delete(world.turn_deg, doubted).max() < 5.0


def test_rotations_of_a_long_search_stay_rotations() -> None:
    drum = Drum(40, equal=0.5)
    evidence = pair_evidence.gather_evidence(without_matches(drum.lies(drum.graph()[0], 100)[0]))
    number = len(evidence.i)
    search = pair_truth._Search(evidence, np.ones(number), np.zeros(number, np.int64), 40)
    search.run(np.random.default_rng(0).uniform(0.0, 1.0, number))
    assert np.abs(np.swapaxes(search.R, 1, 2) @ search.R - np.eye(3)).max() < 1e-13
