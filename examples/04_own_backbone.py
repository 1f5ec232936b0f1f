"""A backbone of your own in twenty lines: register it, check it, use it like any other."""

import numpy as np
import torch

import manymatch
from manymatch.features import (
    Backbone,
    Extractor,
    FeatureConfig,
    check_backbone,
    register_backbone,
)


@register_backbone("random-filters")
class RandomFilters(Backbone):
    """What random filters of 16 x 16 pixels, one for every 8, respond to; nothing is learned."""

    name, licence = "random-filters", "BSD-3-Clause"
    patch_size, dim, num_layers = 8, 64, 1
    has_norm = False
    origin = 3.5  # centre of cell 0 in input pixels

    def __init__(self, weights=None, offline=False):
        torch.manual_seed(0)
        filters = torch.nn.Conv2d(3, self.dim, kernel_size=16, stride=8, padding=4)
        self.module = torch.nn.Sequential(filters, torch.nn.ReLU()).eval()

    def forward(self, pixels, layers, norm):
        return {1: self.module(pixels)}


print(check_backbone(RandomFilters()))

# Two views of a synthetic scene, the second one moved by (40, 24) pixels.
noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
scene = noise.repeat(8, axis=0).repeat(8, axis=1)
image0, image1 = scene[:400, :560], scene[24:424, 40:600]

extractor = Extractor(FeatureConfig(detector="sift", descriptor="random-filters", longest=0))
features0, features1 = extractor.extract_many([image0, image1])
edges, _, _ = manymatch.associate(features0.descriptors, features1.descriptors, k=1)
motion = features0.points[edges[:, 0]] - features1.points[edges[:, 1]]
print(f"{len(edges)} matches, median motion {np.median(motion, axis=0).round(1)} px")
