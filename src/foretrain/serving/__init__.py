"""HOW PEOPLE REACH IT: the command line, and later REST and the web. Decode, call the core, render."""
