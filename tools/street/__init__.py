"""The renderer of the street photographs."""

from tools.street.scene import RenderedScene, render_scene

__all__ = ["RenderedScene", "render_scene"]
