"""The commands of `xsp`, a module each."""
