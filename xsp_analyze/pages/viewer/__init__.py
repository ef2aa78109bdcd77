"""A trace as boxes on lanes, at every level of detail: what the viewer of a page and of `xsp view` draws."""
