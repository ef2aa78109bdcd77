"""Chrome's trace event format, which profilers of many frameworks write: one reader of it for all of them."""
