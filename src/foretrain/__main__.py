"""`python -m foretrain` is the command line."""

from foretrain.serving.cli import main

main()
