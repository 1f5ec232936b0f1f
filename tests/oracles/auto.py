"""Method "auto" step by step: parts of the graph, levels, mixture, search, selection, polish."""

import math
from dataclasses import dataclass, field

import numpy as np

import manymatch
from manymatch import _core
from tests.oracles.auto_graphs import constant, random_stream
from tests.oracles.auto_settle import (
    Settlement,
    Supported,
    heaviest,
    heaviest_at_left,
    polish_weights,
)
from tests.oracles.ransac import Loop, Model
from tests.oracles.refinement import MINIMAL_SET, gather
from tests.oracles.sampling import NEGLIGIBLE, SAMPLE_SIZE
from tests.oracles.scores import cardinality


def guidance_number(seed, iteration):
    """The number in [0, 1) that decides which guide an iteration follows."""
    # Stream 0 draws the sample itself.
    return random_stream(seed, iteration, 1)(2**53) / 2**53


def joint_ranks(graph):
    """Rank (E,) of every edge: as given, and at least its places in the lists of its two ends."""
    edges, number = graph.edges.tolist(), range(graph.num_edges)
    given = np.ones(len(edges), int) if graph.rank is None else graph.rank
    source = np.zeros(len(edges), int) if graph.source is None else graph.source
    worth = graph.prior if graph.similarity is None else graph.similarity
    worth = np.zeros(len(edges)) if worth is None else worth

    def place(e, side):
        rivals = [f for f in number if edges[f][side] == edges[e][side] and source[f] == source[e]]
        return 1 + sum((-worth[f], given[f]) < (-worth[e], given[e]) for f in rivals)

    return np.array([max(given[e], place(e, 0), place(e, 1)) for e in number], int)


def levels_and_priors(graph, kept, q, by_rank):
    """Level (E,) and prior (E,) of every edge; kept (E,) bool or None without a filter."""
    degree0, degree1 = graph.degrees()
    known = graph.rank is not None or graph.similarity is not None
    ranks = joint_ranks(graph) if known else np.ones(graph.num_edges, int)
    levels, priors = [], []
    for e, (i, j) in enumerate(graph.edges):
        rank = min(int(ranks[e]), int(constant("kRanks")))
        level, prior = 2 * (rank - 1), q / rank
        if not known or not by_rank:
            prior = q / (2.0 * int(degree0[i])) + q / (2.0 * int(degree1[j]))
        if kept is not None and not kept[e]:
            level, prior = level + 1, prior * constant("kNotKept")
        levels.append(level)
        priors.append(prior)
    return np.array(levels), np.array(priors)


def hcm(edges, prior, inliers, delta, doubt):
    """HCM of an inlier mask with given priors, vertices in the order in which inliers meet them."""
    sides = []
    for side in (0, 1):
        mass, sums = {}, {}
        for e, v in enumerate(edges[:, side].tolist()):
            mass[v] = mass.get(v, 0.0) + float(prior[e])
            if inliers[e]:
                sums[v] = sums.get(v, 0.0) + float(prior[e])
        total = 0.0
        for v, inlier_mass in sums.items():
            total += math.log1p(1.0 / (max(1.0 - mass[v], doubt) * delta) * inlier_mass)
        sides.append(total)
    return sides[0] + sides[1]


def inlier_chance(edges, allowed, inliers):
    """Chance that one draw is an inlier, and its deviation; every left vertex is as likely."""
    shares = [
        np.mean(inliers[allowed][edges[allowed, 0] == v]) for v in np.unique(edges[allowed, 0])
    ]
    share = float(np.mean(shares))
    return share, math.sqrt(share * (1.0 - share) / len(shares))


def holds_a_sample(edges, allowed, n0, n1):
    """Whether five of the allowed edges can hold together."""
    return cardinality(edges[allowed], n0, n1) >= SAMPLE_SIZE


@dataclass
class Auto(Loop):
    """The search on the narrow part; selection and polish on the wide one.

    `edges`, `proposals` are of the narrow part; see `auto`.
    """

    uses: frozenset = frozenset()
    prior: np.ndarray | None = None
    guides: list = field(default_factory=list)  # (share, mask of the narrow edges)
    wide: np.ndarray | None = None
    wide_prior: np.ndarray | None = None
    single_prior: np.ndarray | None = None
    weight: np.ndarray | None = None
    support: float = -1.0
    refined: list = field(default_factory=list)
    settlement: Settlement | None = None
    next_count: int = 0

    def evaluate(self, R, t):
        o = self.options
        _, size, inliers, _ = _core.score(
            self.x0, self.x1, self.edges, self.eps, o.q, o.delta, R, t
        )
        score = hcm(self.edges, self.prior, inliers, o.delta, constant("kNoMatchProbability"))
        return Model(R, t, score, size, int(inliers.sum()))

    def solutions(self, count):
        """Poses of every iteration: each draws from its guide's edges, or from all it may."""
        allowed, seed = self.proposals, self.options.seed
        sources = [super().solutions(count)]
        for _, mask in self.guides:
            self.proposals = mask
            sources.append(super().solutions(count))
        self.proposals = allowed
        poses = []
        for it in range(count):
            u, chosen = guidance_number(seed, it), 0
            for k, (share, _) in enumerate(self.guides, start=1):
                if u < share:
                    chosen = k
                    break
                u -= share
            poses.append(sources[chosen][it])
        return poses

    def wanted_iterations(self, best):
        """By the chance that this mixture draws a clean sample, a little less believed."""
        if "stopping" not in self.uses:
            return super().wanted_iterations(best)
        o = self.options
        inliers = _core.score(self.x0, self.x1, self.edges, self.eps, o.q, o.delta, best.R, best.t)[
            2
        ]
        rest = 1.0 - sum(share for share, _ in self.guides)
        phat = 0.0
        for share, mask in [*self.guides, (rest, self.proposals)]:
            chance, deviation = inlier_chance(self.edges, mask, inliers)
            phat += (
                share * max(chance - constant("kBiasDeviations") * deviation, 0.0) ** SAMPLE_SIZE
            )
        if phat >= 1.0 - NEGLIGIBLE:
            return o.min_iterations
        if phat <= NEGLIGIBLE:
            return o.max_iterations
        needed = math.ceil(o.safety * math.log1p(-o.confidence) / math.log1p(-phat))
        return min(max(needed, o.min_iterations), o.max_iterations)

    def recounted(self, pool, best, it, bound):
        """Ends the search where many seeds found the best model, or hardly any after long."""
        o, batch = self.options, int(constant("kBatch"))
        if "stopping" not in self.uses or it % batch or it < max(self.next_count, o.min_iterations):
            return bound
        if best is None or it >= min(o.max_iterations, max(o.min_iterations, bound) + 1):
            return bound
        self.next_count = it + max(it // 4, batch)
        enough = -constant("kRepeats") * math.log1p(-o.confidence)
        if len(pool) < enough:
            return bound
        found = self.inliers_of(self.edges, best.R, best.t)
        repeats = 0
        for seed, _ in pool:
            seen = self.inliers_of(self.edges, seed.R, seed.t)
            common = (seen & found).sum() - SAMPLE_SIZE
            own = constant("kCommonShare") * (seen.sum() - SAMPLE_SIZE)
            reached = constant("kReachedShare") * (found.sum() - SAMPLE_SIZE)
            repeats += common > 0 and common >= max(own, reached)
        hopeless = it >= constant("kHopelessIterations") and repeats < constant("kFewRepeats")
        if hopeless or repeats >= enough:
            return min(bound, it)
        return bound

    def inliers_of(self, edges, R, t):
        o, edges = self.options, np.ascontiguousarray(edges, dtype=np.int32)
        return _core.score(self.x0, self.x1, edges, self.eps, o.q, o.delta, R, t)[2]

    def wide_inliers(self, R, t):
        return self.inliers_of(self.wide, R, t)

    def support_of(self, inliers):
        """Weight of the heaviest matching or a bound that it cannot win with; or largest size."""
        if "weights" in self.uses:
            bound = heaviest_at_left(self.wide[inliers], self.weight[inliers])
            if bound <= self.support:
                return bound
            return heaviest(self.wide[inliers], self.weight[inliers])
        return cardinality(self.wide[inliers], len(self.x0), len(self.x1))

    def select(self, outcome, best):
        """The found pose first, then the seeds by falling score; what repeats is skipped."""
        chosen, taken = None, []
        for raw in [None, *(m for m, _ in sorted(outcome.pool, key=lambda s: (-s[0].hcm, s[1])))]:
            pose = best.R, best.t
            if raw is not None:
                seen = self.wide_inliers(raw.R, raw.t)
                same = [
                    (seen & other).sum() >= constant("kRepeatedShare") * seen.sum()
                    for other in taken
                ]
                if "distinct" in self.uses and any(same):
                    continue
                pose = self.refined_seed(raw)
                outcome.pool_refinements += 1
            taken.append(self.wide_inliers(*pose))
            support = self.support_of(taken[-1])
            self.refined.append(Supported(pose, support))
            if support > self.support + 1e-9:
                self.support, chosen = support, Model(*pose, 0.0, 0, 0)
        return chosen

    def refined_seed(self, raw):
        """LocalRefine with fewer steps."""
        used = gather(self.x0, self.x1, self.wide, 5.0 * self.eps**2, raw.R, raw.t)
        if used.sum() <= MINIMAL_SET:
            return raw.R, raw.t
        ends0, ends1 = self.wide[used].T
        weight = 1.0 / np.bincount(ends0)[ends0] + 1.0 / np.bincount(ends1)[ends1]
        points = self.x0[ends0], self.x1[ends1]
        steps = int(constant("kSelectSteps"))
        return _core.refine(*points, weight, raw.R, raw.t, self.eps, "truncated", steps)[:2]

    def polish(self, best):
        pose = self.first_polish(best)
        if "residuals" in self.uses:
            o = self.options
            points = self.x0, self.x1, self.wide, self.wide_prior, self.single_prior
            self.settlement = Settlement(*points, self.eps, o.delta, o.seed)
            pose = self.settlement.run(pose, self.refined)
        return pose

    def first_polish(self, best):
        """Edges up to some thresholds away, by prior mass, again until the inliers stay."""
        R, t = best.R, best.t
        if "polish" not in self.uses:
            return _core.final_polish(self.x0, self.x1, self.wide, self.eps, R, t)[:2]
        before = self.wide_inliers(R, t)
        for _ in range(int(constant("kMaxPolishes"))):
            limit = (constant("kPolishReach") * self.eps) ** 2
            used = gather(self.x0, self.x1, self.wide, limit, R, t)
            if used.sum() > MINIMAL_SET:
                weight = polish_weights(self.wide[used], self.wide_prior[used])
                ends0, ends1 = self.wide[used].T
                points, steps = (self.x0[ends0], self.x1[ends1]), int(constant("kPolishSteps"))
                R, t, *_ = _core.refine(*points, weight, R, t, self.eps, "cauchy", steps)
            after = self.wide_inliers(R, t)
            if (before == after).all():
                break
            before = after
        return R, t


def auto(graph, camera, options, proposals=None):
    """Outcome of the twin, which ran, and the price (E,) of every edge in the last matching."""
    uses = frozenset(manymatch.options.AUTO_PARTS) - set(options.disable)
    x0, x1 = camera.unproject(graph.points0), camera.unproject(graph.points1)
    edges = np.ascontiguousarray(graph.edges, dtype=np.int32)
    sizes = len(x0), len(x1)
    order = range(len(edges))
    if graph.rank is not None:
        order = np.argsort(joint_ranks(graph), kind="stable")
    considered = sorted(order[: int(constant("kConsideredEdges"))])
    kept = None
    if "filter" in uses:
        kept = np.zeros(len(edges), bool)
        kept[considered] = manymatch.gms_filter(graph.reordered(considered), (1, 1), (1, 1)).mask
    levels, prior = levels_and_priors(graph, kept, options.q, "ranks" in uses)
    allowed = np.ones(len(edges), bool) if proposals is None else proposals
    named = np.zeros(len(edges), bool) if proposals is None else proposals

    wide = named.copy()
    wide[considered] = True
    if not holds_a_sample(edges, wide & allowed, *sizes):
        wide[:] = True
    narrow = named.copy()
    explored = int(constant("kSearchedEdges")) if "narrow" in uses else len(considered)
    narrow[sorted(considered, key=lambda e: (-prior[e], e))[:explored]] = True
    if not holds_a_sample(edges, narrow & allowed, *sizes):
        narrow = wide

    guides = []
    for level, share in ((0, constant("kShareOfLevel0")), (1, constant("kShareOfLevels01"))):
        chosen = narrow & allowed & (levels <= level)
        enough = cardinality(edges[chosen], *sizes) >= SAMPLE_SIZE + constant("kSpareEdges")
        if "mixture" in uses and enough:
            guides.append((share, chosen[narrow]))
    weight = np.log1p(prior / ((1.0 - prior) * options.delta))
    loop = Auto(
        x0,
        x1,
        np.ascontiguousarray(edges[narrow]),
        options.threshold_px / camera.focal,
        "hcm-mcm",
        options,
        allowed[narrow],
        uses=uses,
        prior=prior[narrow],
        guides=guides,
        wide=np.ascontiguousarray(edges[wide]),
        wide_prior=prior[wide],
        single_prior=levels_and_priors(graph, None, options.q, "ranks" in uses)[1][wide],
        weight=weight[wide],
    )
    outcome = loop.run()
    per_residual = constant("kResidualWeight")
    if loop.settlement is not None:
        per_residual = 0.5 / loop.settlement.scale**2
    return outcome, loop, (weight.max() - weight) / per_residual
