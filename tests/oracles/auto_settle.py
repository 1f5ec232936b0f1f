"""The last stage of method "auto" step by step: noise, support, new samples, alternatives."""

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment, minimize
from scipy.stats import norm

from manymatch import _core
from tests.oracles.auto_graphs import constant, random_stream
from tests.oracles.ransac import unit_rays
from tests.oracles.refinement import MINIMAL_SET, signed_sampson
from tests.oracles.sampling import SAMPLE_SIZE
from tests.oracles.scores import cardinality

NEAR_SAMPLE = 2  # the stream of random numbers
POSE = "relative_pose/problem.cpp"


def settle(name):
    return constant(name, "ransac/settle.h")


def noise(name):
    return constant(name, "score/noise.cpp")


def apart(pose, other):
    """Whether two poses (R, t) differ in rotation."""
    return not 0.5 * (np.trace(pose[0].T @ other[0]) - 1.0) > constant("kSameRotation")


def same(pose, other):
    return not apart(pose, other) and pose[1] @ other[1] > constant("kSameDirection")


def polish_weights(edges, prior):
    """What every edge is of the prior mass at its two vertices, times the root of its prior."""
    mass0, mass1 = np.zeros(edges[:, 0].max() + 1), np.zeros(edges[:, 1].max() + 1)
    np.add.at(mass0, edges[:, 0], prior)
    np.add.at(mass1, edges[:, 1], prior)
    return np.sqrt(prior) * (prior / mass0[edges[:, 0]] + prior / mass1[edges[:, 1]])


def heaviest(edges, weight):
    """Largest total weight of a matching, by SciPy on the whole table."""
    if len(edges) == 0:
        return 0.0
    table = np.zeros(edges.max(axis=0) + 1)
    table[edges[:, 0], edges[:, 1]] = weight
    rows, columns = linear_sum_assignment(table, maximize=True)
    return math.fsum(table[rows, columns])


def heaviest_at_left(edges, weight):
    """An upper bound of it: every left vertex takes its heaviest edge."""
    best = {}
    for i, w in zip(edges[:, 0].tolist(), weight.tolist(), strict=True):
        best[i] = max(best.get(i, 0.0), w)
    return math.fsum(best.values())


@dataclass
class NearResiduals:
    """Distances from a line near a model with their weights, and the density of wrong ones."""

    squared: np.ndarray
    weight: np.ndarray
    density: float

    @classmethod
    def of(cls, squared, weight):
        """Those within the window; the wrong ones are counted where no true one can be."""
        first, last = noise("kFirstWrong"), noise("kLastWrong")
        wrong = (squared >= first**2) & (squared < last**2)
        density = max(weight[wrong].sum() / (last - first), noise("kLeastDensity"))
        near = squared < noise("kWindow") ** 2
        return cls(squared[near], weight[near], density)

    def fit(self, free):
        """Variance and number of the true edges, by expectation maximisation.

        Wrong edges have the known density, or with `free` that or more.
        """
        window = noise("kWindow")
        total = self.weight.sum()
        density, variance = self.density, 0.25
        number = max(total - density * window, 1.0)
        for _ in range(int(noise("kRounds"))):
            scale = math.sqrt(variance)
            # Of a normal distribution of distances, folded at zero and cut at the window.
            share = 2.0 * norm.cdf(window / scale) - 1.0
            true = number / share * 2.0 * norm.pdf(np.sqrt(self.squared), scale=scale)
            belongs = self.weight * true / (true + density)
            k = window / scale
            cut = 1.0 - 2.0 * k * norm.pdf(k) / share
            found = (belongs @ self.squared) / max(belongs.sum(), 1e-9) / cut
            found = min(max(found, noise("kLeastVariance")), noise("kMostVariance"))
            if free:
                density = max(self.density, (total - belongs.sum()) / window)
            settled = abs(found - variance) < noise("kPrecision") * variance
            variance, number = found, max(belongs.sum(), 1.0)
            if settled:
                break
        return variance, number

    def likeliest_scale(self):
        """Scale of the noise of the largest likelihood, wrong edges as dense as they like."""
        window, total = noise("kWindow"), self.weight.sum()
        distance = np.sqrt(self.squared)

        def cost(parameters):
            scale, share = math.exp(parameters[0]), 1.0 / (1.0 + math.exp(-parameters[1]))
            true = 2.0 * norm.pdf(distance, scale=scale) / (2.0 * norm.cdf(window / scale) - 1.0)
            return -self.weight @ np.log(share * true + (1.0 - share) / window) / total

        starts = [(math.log(scale), 1.0) for scale in (0.1, 0.3, 1.0)]
        runs = [minimize(cost, start, method="Nelder-Mead") for start in starts]
        return math.exp(min(runs, key=lambda run: run.fun).x[0])


@dataclass
class Supported:
    """A pose (R, t) and how much speaks for it."""

    pose: tuple
    support: float


@dataclass
class Settlement:
    """On points of the normalised plane; `edges`, `prior` are those that selection sees.

    `single` are the priors (E,) without the motion filter.
    """

    x0: np.ndarray
    x1: np.ndarray
    edges: np.ndarray
    prior: np.ndarray
    single: np.ndarray
    eps: float
    delta: float
    seed: int
    most_scale: float = 1.0
    scale: float = 1.0
    polish_scale: float = 1.0
    best: Supported | None = None
    best_chance: float = 0.0
    others: list = field(default_factory=list)

    def squared(self, pose):
        """Squared residuals (E,) in squared thresholds; what is behind a camera is far away."""
        ends0, ends1 = self.edges.T
        r2, front = _core.sampson(self.x0[ends0], self.x1[ends1], *pose)
        r2 = r2 / self.eps**2
        return np.where(front & (r2 < settle("kBehind")), r2, settle("kBehind"))

    def near(self, pose):
        """Residuals around a pose; edges count by their prior over the largest."""
        return NearResiduals.of(self.squared(pose), self.prior / self.prior.max())

    def chance(self, pose):
        """How likely a wrong edge is an inlier; poses that are the same share it."""
        if self.best_chance and same(pose, self.best.pose):
            return self.best_chance
        distance = np.sqrt(self.squared(pose))
        first, last = constant("kFirstWrong", POSE), constant("kLastWrong", POSE)
        assumed = constant("kAssumed", "score/noise.cpp")
        wrong = (distance > first).sum() + assumed
        near = ((distance > first) & (distance < last)).sum() / (last - first)
        return max(self.delta, (near + assumed * self.delta) / wrong)

    def log_odds(self, prior, distance, chance):
        """That edges are true, by their prior and their distance (E,) in thresholds."""
        # Density of true residuals over that of wrong ones.
        return (
            np.log(prior / (1.0 - prior) / chance)
            + math.log(2.0)
            + norm.logpdf(distance, scale=self.scale)
        )

    def weights(self, pose, prior):
        odds = self.log_odds(prior, np.sqrt(self.squared(pose)), self.chance(pose))
        # About log(1 + exp(odds)).
        soft = settle("kSoft")
        weight = np.where(odds >= soft, odds, (odds + soft) ** 2 / (4.0 * soft))
        used = odds > -soft
        return used, weight[used]

    def support(self, pose, prior=None):
        """Weight of the heaviest matching."""
        used, weight = self.weights(pose, self.prior if prior is None else prior)
        return heaviest(self.edges[used], weight)

    def bound(self, pose):
        used, weight = self.weights(pose, self.prior)
        return heaviest_at_left(self.edges[used], weight)

    def refine(self, pose, scale, loss, steps):
        """Refine on the edges within reach, weighted by prior mass."""
        reach = settle("kPolishDeviations") * self.scale
        reach = min(max(reach, settle("kLeastPolishReach")), constant("kPolishReach"))
        used = self.squared(pose) < reach**2
        if used.sum() <= MINIMAL_SET:
            return pose
        ends0, ends1 = self.edges[used].T
        weight = polish_weights(self.edges[used], self.prior[used])
        x0, x1 = self.x0[ends0], self.x1[ends1]
        return _core.refine(x0, x1, weight, *pose, scale * self.eps, loss, int(steps))[:2]

    def look_at(self, pose):
        """Take a pose as the best, with the noise that it shows."""
        spread = math.sqrt(self.near(pose).fit(free=False)[0])
        self.scale = min(max(spread, settle("kLeastScale") * self.most_scale), self.most_scale)
        chance = self.chance(pose)
        self.best = Supported(pose, self.support(pose))
        self.best_chance = chance
        least = settle("kLeastScale") * self.most_scale
        self.polish_scale = min(max(self.noise()[0], least), self.most_scale)

    def consider(self, pose):
        """Polish a pose quickly; the better of it and the best is the best."""
        scale = settle("kTruncatedAt") * self.scale
        pose = self.refine(pose, scale, "truncated", settle("kFirstSteps"))
        support = self.bound(pose)
        if support > self.best.support:
            support = self.support(pose)
        other, chance = Supported(pose, support), self.chance(pose)
        if support > self.best.support:
            self.best, other, self.best_chance = other, self.best, chance
        self.others.append(other)

    def run(self, pose, refined):
        """From the polished pose and the refined ones of the selection."""
        self.look_at(pose)
        refined = ranked(refined)[: int(constant("kSettleMeasured"))]
        refined = ranked([Supported(m.pose, self.bound(m.pose)) for m in refined])
        for other in refined[: int(constant("kSettleRefined"))]:
            self.consider(other.pose)
        self.look_at(self.best.pose)
        for number in range(int(constant("kSettleRounds"))):
            self.explore(number)
            pose = self.best.pose
            for _ in range(int(settle("kPolishes"))):
                pose = self.refine(pose, self.polish_scale, "cauchy", settle("kLastSteps"))
            self.look_at(pose)
        return self.best.pose

    def explore(self, number):
        """Sample anew among the edges that the best pose nearly explains."""
        squared = self.squared(self.best.pose)
        scored = np.flatnonzero(squared < settle("kScoredReach") ** 2)
        likely = self.prior >= settle("kLeastRelativePrior") * self.prior.max()
        sampled = [e for e in scored if squared[e] < settle("kSampledReach") ** 2 and likely[e]]
        if cardinality(self.edges[sampled], len(self.x0), len(self.x1)) <= SAMPLE_SIZE:
            return
        before, others = self.best.pose, []
        for rank, found in enumerate(ranked(self.sample(scored, sampled, number))):
            if rank >= settle("kPolished"):
                if len(others) == constant("kOtherPolished"):
                    return
                if not all(apart(found.pose, other) for other in [before, *others]):
                    continue
                others.append(found.pose)
            self.consider(found.pose)

    def sample(self, scored, sampled, number):
        """Poses of new samples with a quick score."""
        count = int(constant("kSettleSamples"))
        drawn = [self.draw(sampled, number * count + i) for i in range(count)]
        ends = self.edges[[row for row in drawn if row is not None]]
        rays0, rays1 = unit_rays(self.x0)[ends[..., 0]], unit_rays(self.x1)[ends[..., 1]]
        _, R, t = _core.five_point(rays0, rays1)
        edges, prior = self.edges[scored], self.prior[scored]
        share = polish_weights(edges, prior) / np.sqrt(prior)
        top = self.log_odds(prior, 0.0, self.chance(self.best.pose))
        x0, x1 = self.x0[edges[:, 0]], self.x1[edges[:, 1]]
        found = []
        for pose in zip(R, t, strict=True):
            with np.errstate(all="ignore"):
                left = top - 0.5 * (signed_sampson(x0, x1, *pose) / (self.scale * self.eps)) ** 2
            found.append(Supported(pose, float(share[left > 0.0] @ left[left > 0.0])))
        return found

    def draw(self, sampled, iteration):
        """One sample: left vertices in random order, at each the first free edge from a start."""
        below = random_stream(self.seed, iteration, NEAR_SAMPLE)
        at = {}
        for e in sampled:
            at.setdefault(int(self.edges[e, 0]), []).append(int(e))
        for _ in range(max(50, 10 * len(at))):
            waiting, chosen, taken = list(at), [], set()
            while waiting and len(chosen) < SAMPLE_SIZE:
                other = below(len(waiting))
                # The one that was first waits where the other was.
                waiting[0], waiting[other] = waiting[other], waiting[0]
                edges = at[waiting.pop(0)]
                start = below(len(edges)) if len(edges) > 1 else 0
                for e in edges[start:] + edges[:start]:
                    if self.edges[e, 1] not in taken:
                        chosen.append(e)
                        taken.add(self.edges[e, 1])
                        break
            if len(chosen) == SAMPLE_SIZE:
                return chosen
        return None

    def noise(self):
        variance, number = self.near(self.best.pose).fit(free=True)
        freedom = max(number - SAMPLE_SIZE, 1.0)
        scale = math.sqrt(min(variance * number / freedom, noise("kMostVariance")))
        return scale, scale / math.sqrt(2.0 * freedom)

    def alternatives(self):
        """Other poses than the best, each with its support and its advantage; likeliest first."""
        distinct = []
        for other in ranked(self.others):
            if len(distinct) == settle("kMostOthers"):
                break
            if not any(same(m.pose, other.pose) for m in [self.best, *distinct]):
                distinct.append(other)
        best = self.support(self.best.pose, self.single)
        found = [
            (other.pose, self.support(other.pose), self.support(other.pose, self.single) - best)
            for other in distinct
        ]
        return sorted(found, key=lambda other: -other[2])


def ranked(models):
    """Best supported first, equal ones as they came."""
    return sorted(models, key=lambda m: -m.support)
