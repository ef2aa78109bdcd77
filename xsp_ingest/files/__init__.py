"""Reading files safely and in bounded pieces, whatever their format."""
