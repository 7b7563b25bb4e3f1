"""SQLite read models."""

from projections.tables.read_models import ReadModels, ReadView, Row

__all__ = ["ReadModels", "ReadView", "Row"]
