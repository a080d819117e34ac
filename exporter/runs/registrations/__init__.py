"""What clients register: rl-insight's server API, so that verl's `rl_insight` logger works as it is."""
