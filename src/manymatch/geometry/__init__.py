"""Cameras and poses."""
