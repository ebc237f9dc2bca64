"""Where step times come from when the script does not call `foretrain.step()`: what it prints."""
