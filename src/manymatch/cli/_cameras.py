"""Cameras as people write them on a command line."""

from manymatch.matcher._camera_text import parse_camera

__all__ = ["parse_camera"]
