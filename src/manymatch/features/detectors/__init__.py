"""Detectors: image to keypoints."""
