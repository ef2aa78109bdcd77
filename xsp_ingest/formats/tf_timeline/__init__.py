"""TensorFlow 1 timelines: the Chrome JSON that `tensorflow.python.client.timeline` makes of a RunMetadata."""

from xsp_ingest.formats.tf_timeline.ingester import TfTimeline

__all__ = ["TF_TIMELINE"]

TF_TIMELINE = TfTimeline()
