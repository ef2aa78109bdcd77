"""From Nsight's tables to the rows of a trace, whichever kind of export holds them."""
