"""What Nsight Compute writes: the CSV of its pages, and its binary reports."""
