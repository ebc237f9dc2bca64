"""What a whole job takes: its steps, its best run configuration on given machines, time, bill and energy.

`planning` and `scheduling` stand on this layer. A job on one kind of machine, from start to end:

    length = length_of(LengthOptions(epochs=90, samples=1_281_167))     # jobs.length
    configuration = best_configuration(workload, hardware, length)      # jobs.configurations
    if not isinstance(configuration, Infeasible):
        job(configuration.step, configuration.job_steps, (hardware,))   # jobs.job

Modules, in the order in which a job is composed:

- `length`: steps to the end, at any global batch; `epochs`: how they depend on the batch, and one pass over a
  data set.
- `batch_limits`: which batch sizes may be chosen.
- `configurations`: strategy, batch and micro-batches. `configure` and `verify` are its two stages, for
  callers that compare many machines and verify few. `step_table` holds the cost of steps.
- `job`: time, checkpoints, bill and energy of all steps; `bill` and `interruptions` price the parts.
- `predict`: step, epoch and job in one answer.
"""
