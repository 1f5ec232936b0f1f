"""Many photographs: which pairs are true, a model of the scene, photographs located in it."""
