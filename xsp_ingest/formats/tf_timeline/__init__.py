"""TensorFlow 1 timelines: the Chrome JSON that `tensorflow.python.client.timeline` makes of a RunMetadata."""

from xsp_ingest.tf_timeline.ingester import TfTimeline

__all__ = ["TF_TIMELINE"]

TF_TIMELINE = TfTimeline()
