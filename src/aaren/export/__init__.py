"""Streams without torch: a step recorded, lowered to a program of the C runtime, run here or written as C."""

from aaren.export.write import Exported, export_stream

__all__ = ["Exported", "export_stream"]
