"""What commands, pages, batches, the API and agents all ask of a trace: answers, contents, distance from its roofs."""
