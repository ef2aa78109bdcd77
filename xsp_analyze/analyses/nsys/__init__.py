"""Twenty-four reports of `nsys stats`, computed from the trace: the semantics and headings of nsys 2023.4.4.

Where nsys leaves the order of rows open (equal totals in cuda_api_sum: its own numbers of names), ours is by name. Not
in our model, so not in the reports: green contexts (the column GreenCtx stays empty), and NVTX marks, by which
nvtx_sum of nsys would close a range that never ended if a mark came after every other range.
"""
