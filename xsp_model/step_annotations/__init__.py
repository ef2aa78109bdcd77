"""Names that serving engines give their steps, read as data: phase, requests and tokens."""

from xsp_model.step_annotations.annotation import ServingPhase, StepAnnotation
from xsp_model.step_annotations.parse import is_serving_step, parse_step_annotation

__all__ = ["ServingPhase", "StepAnnotation", "is_serving_step", "parse_step_annotation"]
