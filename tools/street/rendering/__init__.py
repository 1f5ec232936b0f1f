"""The parts of `manymatch.datasets.rendered`: geometry, light, materials, houses, the street."""
