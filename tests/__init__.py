"""foretrain's tests. A package, because a dependency installs a package `tests` that would be found instead."""
