"""The families of networks, one file each; every file registers its models when imported."""
