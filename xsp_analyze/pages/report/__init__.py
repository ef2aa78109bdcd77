"""The report about a trace: `page` is the whole of it, the other modules are its parts."""
