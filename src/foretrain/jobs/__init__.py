"""What a whole job takes: its steps, its best run configuration on given machines, time, bill and energy.

`planning` and `scheduling` stand on this layer. A job on one kind of machine, from start to end:

    length = length_of(LengthOptions(epochs=90, samples=1_281_167))     # jobs.length
    configuration = best_configuration(workload, hardware, length)      # jobs.configurations
    if not isinstance(configuration, Infeasible):
        job(configuration.step, configuration.job_steps, (hardware,))   # jobs.job

Modules, in the order in which a job is composed:

- `length`: steps to the end, at any global batch; `epochs_by_batch`, `stages`: how they depend on the batch.
- `batch_limits`: which batch sizes may be chosen.
- `configurations`: strategy, batch and micro-batches. `configure` and `verify` are its two stages, for
  callers that compare many machines and verify few. `step_table`, `device_memory` hold the cost of steps.
- `job`: time, checkpoints, bill and energy of all steps; `bill`, `energy`, `interruptions` price the parts.
- `epoch`: one pass over a data set.
"""
