"""The engine of `xsp batch`: what the inputs are, what is done with one of them, and who does it."""
