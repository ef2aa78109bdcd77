"""Numbers with units, names and tables as text: what findings, comparisons and renderers all write with."""
