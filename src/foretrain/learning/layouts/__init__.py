"""What timed layouts of a training framework teach about many devices."""
