"""Matchers of two images; every module registers its own with `manymatch.features.registry`."""
