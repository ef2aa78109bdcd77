"""A trace as everything else sees it: steps chosen, roles applied, and each frame of it computed once."""
