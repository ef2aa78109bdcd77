"""Names that serving engines give their steps, read as data: phase, requests and tokens."""

from xsp_model.step_annotations.parse import ServingPhase, StepAnnotation, is_serving_step, parse_step_annotation

__all__ = ["ServingPhase", "StepAnnotation", "is_serving_step", "parse_step_annotation"]
