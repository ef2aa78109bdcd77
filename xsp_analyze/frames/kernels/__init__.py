"""Work of devices: activities, their classes and counters, and what kernels could reach."""
