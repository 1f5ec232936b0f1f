"""The renderer of the street photographs."""

from tools.street.scene import RenderedScene, render_scene, render_walk

__all__ = ["RenderedScene", "render_scene", "render_walk"]
