"""The renderer of the street photographs."""
