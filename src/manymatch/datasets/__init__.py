"""Pairs of views with known pose."""

from manymatch.datasets import synthetic

__all__ = ["synthetic"]
