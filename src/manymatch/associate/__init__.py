"""From descriptors to a graph of candidates."""
