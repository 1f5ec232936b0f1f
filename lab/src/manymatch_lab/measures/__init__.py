"""Measures that only the experiments use."""
