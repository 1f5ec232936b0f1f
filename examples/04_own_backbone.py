"""A backbone of your own in twenty lines: register it, check it, use it like any other.

Needs `pip install ".[features]"`. Usage: 04_own_backbone.py [image0 image1]
"""

import sys
from pathlib import Path

try:
    import torch
except ModuleNotFoundError as missing:
    sys.exit(f'This example needs {missing.name}: pip install ".[features]"')

import manymatch as mm
from manymatch.features import Backbone, check_backbone, register_backbone


@register_backbone("random-filters")
class RandomFilters(Backbone):
    """Responses of random filters of 16 x 16 pixels, one for every 8 pixels; nothing is learned."""

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

photos = Path(__file__).parent / "photos"
images = sys.argv[1:3] if len(sys.argv) > 2 else [photos / "street2.jpg", photos / "street3.jpg"]
matcher = mm.Matcher("classic", descriptor="random-filters")  # described at SIFT keypoints
print(matcher.match(*images))
