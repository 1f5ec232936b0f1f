"""Whether a writer has cleaned up behind itself."""


def no_leftovers(folder):
    return not [path for path in folder.rglob("*") if path.name.endswith(".tmp")]
