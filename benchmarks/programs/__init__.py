"""What is run, a module each, in a fresh process of ours or of a peer's Python: they import nothing else of XSP's."""
