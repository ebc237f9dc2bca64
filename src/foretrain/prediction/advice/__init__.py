"""What limits a step and what would change it: bottleneck, counterfactuals, scaling curve."""
