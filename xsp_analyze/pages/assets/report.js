// What only the report of a trace draws.
Object.assign(DRAW, {
  icicle: drawIcicle,
  tree: drawTree,
  layers: drawLayers,
  kernels: drawKernels,
  advice: drawAdvice,
  analyses: drawAnalyses,
  timelines: drawTimelines,
  roofline: drawRoofline,
});
