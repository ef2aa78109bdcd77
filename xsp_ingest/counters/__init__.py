"""What profilers call their hardware counters, and how these become the model's: names, units, numbers, formulas."""
