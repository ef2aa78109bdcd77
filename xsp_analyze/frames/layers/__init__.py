"""Times of layers and modules, and the blocks that layers repeat."""
