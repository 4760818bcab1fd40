"""Runtime modes, for jobs whose sources are bounded: without one they are BATCH jobs."""

from __future__ import annotations

STREAMING = {"execution.runtime-mode": "STREAMING"}
