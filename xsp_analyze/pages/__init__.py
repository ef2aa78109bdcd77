"""HTML pages: the report of a trace, comparisons, cohorts and jobs of ranks."""
