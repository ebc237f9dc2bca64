"""foretrain's tests: a package, because a dependency of them (gpuhunt) installs one of the same name."""
