"""Two captures of the same work beside each other: ratios with their intervals, and what explains the difference."""
