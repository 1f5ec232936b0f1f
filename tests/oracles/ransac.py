"""The estimator's loop, one iteration after another, with the compiled parts as black boxes."""

import math
from dataclasses import dataclass, field

import numpy as np

from manymatch import _core
from tests.oracles.sampling import iteration_bound


@dataclass
class Model:
    """A pose with its scores."""

    R: np.ndarray
    t: np.ndarray
    hcm: float
    cardinality: int
    num_inliers: int


@dataclass
class Outcome:
    """What the twin found; pose is None when no model was ever found."""

    R: np.ndarray | None = None
    t: np.ndarray | None = None
    iterations: int = 0
    local_refinements: int = 0
    pool_refinements: int = 0
    pool: list[tuple[Model, int]] = field(default_factory=list)


def unit_rays(x):
    """Rays (N, 3) of unit length through points (N, 2), rounded as the estimator rounds them."""
    inverse = 1.0 / np.sqrt(x[:, 0] * x[:, 0] + x[:, 1] * x[:, 1] + 1.0)
    return np.column_stack([x[:, 0] * inverse, x[:, 1] * inverse, inverse])


@dataclass
class Loop:
    """One run on points (N, 2) of the normalised plane; options is a manymatch.Options."""

    x0: np.ndarray
    x1: np.ndarray
    edges: np.ndarray
    eps: float
    method: str
    options: object
    proposals: np.ndarray | None = None
    inserted: int = 0

    def evaluate(self, R, t):
        o = self.options
        hcm, cardinality, inliers, _ = _core.score(
            self.x0, self.x1, self.edges, self.eps, o.q, o.delta, R, t
        )
        return Model(R, t, hcm, cardinality, int(inliers.sum()))

    def refine(self, model, step):
        """Apply LocalRefine or FinalPolish to a model; only the pose comes back."""
        R, t, *_ = step(self.x0, self.x1, self.edges, self.eps, model.R, model.t)
        return R, t

    def value(self, model):
        return model.cardinality if self.method == "mcm" else model.hcm

    def solutions(self, count):
        """Poses of every iteration's sample, as a list of lists."""
        rows = _core.sample(
            self.edges, self.proposals, self.options.seed, count, uniform_edges=False
        )
        drawn = np.flatnonzero((rows >= 0).all(axis=1))
        ends = self.edges[rows[drawn]]
        b0, b1 = unit_rays(self.x0)[ends[..., 0]], unit_rays(self.x1)[ends[..., 1]]
        problem, R, t = _core.five_point(b0, b1)
        poses = [[] for _ in range(count)]
        for k, row in enumerate(problem):
            poses[drawn[row]].append((R[k], t[k]))
        return poses

    def gate(self, raw, best_score, best_inliers):
        """Whether the iteration's best model is worth refining."""
        if self.method == "mcm":
            return raw.cardinality >= best_score
        return raw.hcm > best_score or raw.num_inliers >= best_inliers

    def run(self):
        """Follow the loop literally."""
        o, outcome = self.options, Outcome()
        poses = self.solutions(o.max_iterations)
        best, bound = None, o.max_iterations
        best_score, best_inliers = -math.inf, 0
        it = 0
        while it < o.max_iterations and not (it > o.min_iterations and it > bound):
            models = [self.evaluate(R, t) for R, t in poses[it]]
            it += 1
            if not models:
                bound = self.recounted(outcome.pool, best, it, bound)
                continue
            raw = max(models, key=self.value)
            if self.method == "hcm-mcm":
                self.insert(outcome.pool, raw)
            kept = raw
            if self.gate(raw, best_score, best_inliers):
                best_score = max(best_score, self.value(raw))
                best_inliers = max(best_inliers, raw.num_inliers)
                refined = self.evaluate(*self.refine(raw, _core.local_refine))
                outcome.local_refinements += 1
                if self.value(refined) > self.value(raw):
                    kept = refined
            if best is None or self.value(kept) > self.value(best):
                best = kept
                bound = self.wanted_iterations(best)
            bound = self.recounted(outcome.pool, best, it, bound)
        outcome.iterations = it
        if best is None:
            return outcome
        if self.method == "hcm-mcm":
            best = self.select(outcome, best)
        outcome.R, outcome.t = self.polish(best)
        return outcome

    def wanted_iterations(self, best):
        """Iterations that the best model so far asks for."""
        o = self.options
        return iteration_bound(
            best.num_inliers,
            len(self.edges),
            o.min_iterations,
            o.max_iterations,
            o.confidence,
            o.safety,
        )

    def recounted(self, pool, best, it, bound):  # noqa: ARG002 - a rule of "auto" alone
        """The bound after counting how often the best model was found."""
        return bound

    def polish(self, best):
        return self.refine(best, _core.final_polish)

    def insert(self, pool, raw):
        """Append while there is room, then replace the oldest worst if strictly better."""
        self.inserted += 1
        if len(pool) < self.options.pool_size:
            pool.append((raw, self.inserted))
            return
        worst = min(range(len(pool)), key=lambda k: (pool[k][0].hcm, pool[k][1]))
        if raw.hcm > pool[worst][0].hcm:
            pool[worst] = (raw, self.inserted)

    def select(self, outcome, best):  # noqa: ARG002 - stage 2 forgets the best of stage 1
        """Refine every pool entry once; largest cardinality, then raw HCM, then the earlier."""
        ranked = []
        for raw, inserted in outcome.pool:
            refined = self.evaluate(*self.refine(raw, _core.local_refine))
            ranked.append((refined.cardinality, raw.hcm, -inserted, refined))
        outcome.pool_refinements = len(ranked)
        return max(ranked, key=lambda entry: entry[:3])[3]
