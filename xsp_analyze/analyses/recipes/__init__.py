"""Recipes of `nsys recipe` and rules of `nsys analyze` that speak of GPU work, in the semantics of nsys 2023.4.4.

Thresholds are the tool's defaults. Not in our model: green contexts (the column stays empty). nsys ties copies to
calls by correlation id alone, so that in a file of several processes it can name the wrong process's call; ours is
the call of the same process. Where nsys leaves the order of rows open, ours is by run and start; nvtx_gpu_proj_pace
takes ranges by the time of their first call, nsys by its place in the file, where a process follows another.
"""
