"""WHERE IT RUNS: schedules carried out for real, on this machine, a Ray cluster or a Slurm cluster."""
