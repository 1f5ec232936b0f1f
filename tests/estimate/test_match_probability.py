"""Probabilities of matches: a plain twin, what may not change them, and whether they are true."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manymatch
from manymatch.estimate import problem as module
from manymatch.estimate.problem import match_features, probability_of
from manymatch.estimate.relative_pose import RELATIVE_POSE
from manymatch_lab.datasets.synthetic import EASY, SceneConfig, make_scene
from tests.oracles.auto_graphs import K, constant, wrong_scene
from tests.oracles.matching import is_matching

NEAR, FAR = module._RING


def match_probability(*case):
    return probability_of(match_features(*case), RELATIVE_POSE.match_coefficients)


def twin_features(edges, rank, kept, distance, inliers, matched, q=0.3):
    """Evidence of each match (M, 5), one match and one edge after the other."""
    count = len(edges)
    levels, priors = [], []
    for e in range(count):
        r = 1 if rank is None else min(max(int(rank[e]), 1), int(constant("kRanks")))
        doubtful = len(kept) > 0 and not kept[e]
        levels.append((r, doubtful))
        priors.append(q / r * (constant("kNotKept") if doubtful else 1.0))
    found, chance = {}, {}
    for e in range(count):
        if inliers[e]:
            found[levels[e]] = found.get(levels[e], 0) + 1
        if NEAR < distance[e] < FAR:
            chance[levels[e]] = chance.get(levels[e], 0.0) + 1.0 / (FAR - NEAR)
    all_found, all_chance = sum(found.values()), sum(chance.values())

    def odds(level):
        pooled = (all_chance + 0.5) / (all_found + 1.0)
        wrong = chance.get(level, 0.0) + module._SHRINK * pooled
        wrong = min(max(wrong / (found.get(level, 0) + module._SHRINK), 1e-3), 0.98)
        return (1.0 - wrong) / wrong

    features = []
    for m in matched:
        competition = 1.0
        for side in (0, 1):
            competitors = [e for e in range(count) if edges[e][side] == edges[m][side] and e != m]
            competition *= 1.0 + sum(odds(levels[e]) for e in competitors if inliers[e])
        excess = max(all_found - RELATIVE_POSE.sample_size - all_chance, 1.0) / (
            math.sqrt(all_chance) + 3.0
        )
        size = max(len(matched) - RELATIVE_POSE.sample_size, 1) / math.sqrt(count)
        first = [e for e in range(count) if levels[e][0] == 1]
        agree = sum(bool(inliers[e]) for e in first)
        share = (agree + 0.5) / (len(first) - agree + 1.0)
        features.append([math.log(v) for v in (competition, excess, size, priors[m], share)])
    return np.array(features).reshape(len(matched), 5)


def twin(*case):
    constant_, *slopes = RELATIVE_POSE.match_coefficients
    return np.array(
        [
            1.0
            / (1.0 + math.exp(-constant_ - sum(s * f for s, f in zip(slopes, row, strict=True))))
            for row in twin_features(*case)
        ]
    )


def random_case(seed, n=20, edges=60):
    """Arguments of the function: random edges and residuals, some of the inliers are matches."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, edges + 1))
    pairs = rng.permutation(n * n)[:count]
    ends = np.column_stack([pairs // n, pairs % n]).astype(np.int32)
    rank = rng.integers(1, 8, count).astype(np.int32) if rng.random() < 0.8 else None
    kept = rng.random(count) < 0.5 if rng.random() < 0.7 else np.zeros(0, bool)
    distance = np.where(rng.random(count) < 0.1, np.inf, rng.gamma(1.0, 2.0, count))
    inliers = distance < 1.0
    matched, used = [], (set(), set())
    for e in np.flatnonzero(inliers):
        if ends[e, 0] not in used[0] and ends[e, 1] not in used[1]:
            matched.append(e)
            used[0].add(ends[e, 0])
            used[1].add(ends[e, 1])
    return [ends, rank, kept, distance, inliers, np.array(matched, dtype=np.int64)]


SEEDS = st.integers(0, 2**32)


@given(SEEDS)
def test_equals_its_plain_twin(seed):
    case = random_case(seed)
    assert is_matching(case[0][case[5]])
    got = match_probability(*case)
    np.testing.assert_allclose(got, twin(*case), rtol=1e-12, atol=0)
    features = match_features(*case)
    assert features.shape == (len(got), len(RELATIVE_POSE.match_coefficients) - 1)
    np.testing.assert_allclose(features, twin_features(*case), rtol=1e-12, atol=1e-12)
    assert got.dtype == np.float64


@given(SEEDS, st.floats(0.01, 0.99))
def test_the_prior_is_that_of_the_options(seed, q):
    case = random_case(seed)
    np.testing.assert_allclose(
        match_features(*case, q), twin_features(*case, q), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(("sample_size", "dimensions", "size"), [(4, 2, 21), (3, 3, 117)])
def test_chance_agreements_grow_with_area_or_volume(sample_size, dimensions, size):
    # The ring from 2 to 5 thresholds is `size` times as large as the disc or ball within the
    # threshold: with twice as many candidates there, 2 of the 30 inliers are right by chance.
    distance = np.concatenate([np.full(30, 0.5), np.full(2 * size, 3.0)])
    edges = np.repeat(np.arange(len(distance))[:, None], 2, axis=1).astype(np.int32)
    inliers = distance < 1.0
    known = edges, None, np.zeros(0, bool), distance, inliers, np.flatnonzero(inliers)
    features = match_features(*known, sample_size=sample_size, dimensions=dimensions)
    competition, excess, count, *_ = features.T
    np.testing.assert_allclose(competition, 0.0, atol=1e-12)
    np.testing.assert_allclose(excess, np.log((28 - sample_size) / (np.sqrt(2.0) + 3.0)))
    np.testing.assert_allclose(count, np.log((30 - sample_size) / np.sqrt(len(distance))))


def test_nothing_matched():
    case = random_case(1)
    case[5] = np.zeros(0, np.int64)
    assert match_probability(*case).shape == (0,)
    none, flags = np.zeros((0, 2), np.int32), np.zeros(0, bool)
    assert match_probability(none, None, flags, np.zeros(0), flags, case[5]).shape == (0,)


@given(SEEDS, st.integers(0, 10_000), st.sampled_from([0, 1]))
def test_competitor_never_raises_probability(seed, pick, side):
    # An inlier that competes with nobody moves to the keypoint of a match; all counts stay.
    ends, rank, kept, distance, inliers, matched = random_case(seed)
    loners = np.setdiff1d(np.flatnonzero(inliers), matched)
    if len(matched) == 0 or len(loners) == 0:
        return
    loner, contested_match = loners[pick % len(loners)], pick % len(matched)
    before = ends.copy()
    before[loner] = 20, 20
    after = before.copy()
    after[loner, side] = ends[matched[contested_match], side]
    rest = (rank, kept, distance, inliers, matched)
    alone, contested = match_probability(before, *rest), match_probability(after, *rest)
    assert contested[contested_match] < alone[contested_match]
    others = np.arange(len(matched)) != contested_match
    np.testing.assert_allclose(contested[others], alone[others], rtol=1e-12)


@given(SEEDS)
def test_more_wrong_candidates_never_raise_probability(seed):
    # Candidates near the pose but beyond the threshold tell how many are within it by chance. For
    # a match without competitors nothing else changes when there are more of them.
    ends, rank, kept, distance, inliers, matched = case = random_case(seed)
    if rank is None or len(kept) == 0 or len(matched) == 0:
        return
    alone = [e for e in matched if np.all((ends[inliers] == ends[e]).sum(axis=0) == 1)]
    near = np.where(inliers | np.isinf(distance), distance, 0.5 * (NEAR + FAR))
    before, after = match_probability(*case), match_probability(ends, rank, kept, near, *case[4:])
    chosen = np.isin(matched, alone)
    assert (after[chosen] <= before[chosen] + 1e-12).all()


@given(st.data())
def test_any_arrays_give_probabilities(data):
    count = data.draw(st.integers(1, 30))
    rng = np.random.default_rng(data.draw(SEEDS))
    ends = rng.integers(0, data.draw(st.sampled_from([1, 3, 1000])), (count, 2)).astype(np.int32)
    rank = data.draw(
        st.none()
        | st.lists(st.sampled_from([1, 2, 5, 6, 2**31 - 1]), min_size=count, max_size=count).map(
            lambda r: np.array(r, np.int32)
        )
    )
    kept = data.draw(st.sampled_from([np.zeros(0, bool), rng.random(count) < 0.5]))
    scale = data.draw(st.sampled_from([1e-300, 1.0, 3.0, 1e300, np.inf]))
    distance = np.full(count, np.inf) if scale == np.inf else scale * rng.random(count)
    inliers = data.draw(
        st.sampled_from([np.ones(count, bool), np.zeros(count, bool), rng.random(count) < 0.5])
    )
    matched = np.sort(rng.permutation(count)[: int(rng.integers(0, count + 1))])
    probability = match_probability(ends, rank, kept, distance, inliers, matched)
    assert probability.shape == matched.shape
    assert ((probability >= 0.0) & (probability <= 1.0)).all()


def pooled(config, seeds, settings):
    """Probabilities and truth of all matches of some scenes."""
    probability, truth = [], []
    for seed in seeds:
        scene = make_scene(config, seed)
        estimate = manymatch.estimate_relative_pose(
            scene.graph, scene.camera0, scene.camera1, "auto", settings
        )
        true = {tuple(match) for match in scene.true_matches.tolist()}
        probability.append(estimate.match_probability)
        truth += [tuple(match) in true for match in estimate.matches.tolist()]
    return np.concatenate(probability), np.array(truth)


@pytest.mark.parametrize(
    "config",
    [
        EASY,
        SceneConfig(),
        SceneConfig(family_size=4, num_points=200, num_outliers=100),
        SceneConfig(num_points=60, num_outliers=200, descriptor_noise=0.6),
    ],
)
def test_mean_probability_is_near_the_true_share(config):
    settings = manymatch.Options(threshold_px=1.5, max_iterations=3000)
    probability, truth = pooled(config, range(8), settings)
    assert len(truth) > 400
    assert abs(probability.mean() - truth.mean()) < 0.08


def test_probabilities_are_low_without_motion():
    for seed in range(4):
        graph = wrong_scene(seed, 150).graph
        settings = manymatch.Options(max_iterations=2000)
        estimate = manymatch.estimate_relative_pose(graph, K, K, "auto", settings)
        assert estimate.success
        assert estimate.match_probability.mean() < 0.5
