"""The reproduction of the paper: data sets, systems, experiments."""
