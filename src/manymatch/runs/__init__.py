"""Many pairs: journal, workers, resumption, tables."""
