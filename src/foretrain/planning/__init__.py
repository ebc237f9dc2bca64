"""What to rent or buy: plans of a job over all offers, the buyer's guide, renting against owning.

- `plan`: enumerate (`machines`) -> evaluate (`table`) -> select (`selection`) -> verify
  (`table`); the answer is `frontier.Frontier`. `migration` and `two_phases` add plans that move once,
  `rent_or_buy` renting against owning, also for a stream of jobs, `launch_files` files that start a plan.
- `guide`: networks x hardware x batch sizes.
- `rent_or_buy`: the break-even of one machine. `speedup`: speed-up against cost.
"""
