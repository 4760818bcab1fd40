"""Where the rows of DataFrames are staged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unistream.client.machine.home import home

if TYPE_CHECKING:
    from unistream.host.spark_frames import FrameFolder


def frame_folder(staging: str | None) -> FrameFolder:
    """A new one below `staging`; None: below `$UNISTREAM_HOME`.

    Raises:
        ConfigError: it cannot be created.
    """
    from unistream.host.spark_frames import FrameFolder

    return FrameFolder(home() / "frames", staging)
