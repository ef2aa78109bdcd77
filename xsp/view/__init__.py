"""`xsp view`: a trace served to the browser of the machine that holds it, and to nobody else."""
