"""From a graph of candidates to a model, its matches and how sure they are."""
