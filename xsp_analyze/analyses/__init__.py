"""One file an analysis; `xsp_analyze.catalog` lists them."""
