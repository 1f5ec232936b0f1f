"""Backbones; every module registers its own with `manymatch.features.registry`."""
