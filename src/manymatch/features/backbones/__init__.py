"""Backbones: pixels to dense maps."""
