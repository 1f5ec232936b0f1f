"""Matchers of two images."""
