"""The renderer of the street photographs."""

from tools.street.places import RenderedPlace, render_place
from tools.street.scene import RenderedScene, render_scene, render_walk

__all__ = ["RenderedPlace", "RenderedScene", "render_place", "render_scene", "render_walk"]
