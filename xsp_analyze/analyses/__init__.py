"""One file a subject, which names the ids that it holds; `xsp_analyze.catalog` lists them."""
