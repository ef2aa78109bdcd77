"""CUPTI's activity records as rows of a trace: what CUPTI dumps and nvprof databases hold."""
