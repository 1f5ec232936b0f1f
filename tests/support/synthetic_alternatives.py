"""Estimates with a given number of alternative poses."""

import dataclasses

import numpy as np

from manymatch import RelativePose
from manymatch.estimate.result import Alternative
from tests.oracles.geometry import rotation_from_vector


def with_alternatives(estimate, probabilities=(0.3, 0.125)):
    """Return the estimate with this many alternatives.

    The k-th is turned by another 8 k degrees about the vertical, stands on the other side if k is
    odd, and has every (k + 1)-th match.
    """
    others = []
    for k, probability in enumerate(probabilities, start=1):
        turned = rotation_from_vector(np.radians([0.0, 8.0 * k, 0.0])) @ estimate.pose.R
        pose = RelativePose(turned, -estimate.pose.t if k % 2 else estimate.pose.t)
        matches = estimate.matches[:: k + 1]
        others.append(
            Alternative(
                model=pose,
                probability=probability,
                cardinality=len(matches),
                matches=matches,
                support=100.0 - k,
            )
        )
    return dataclasses.replace(estimate, alternatives=tuple(others))
