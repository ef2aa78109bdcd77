"""What Nsight Systems writes: reports, what nsys exports of them, and the tables that its statistics print."""
