"""Many models side by side (B13): what each trace says of its model and system, and tables over all of them."""
