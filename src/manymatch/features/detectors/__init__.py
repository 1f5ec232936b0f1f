"""Detectors: one file each, chosen by name in `registry`."""
