"""numpy's types of Arrow's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    """The numpy type of the values of an array. `pa.DataType.to_pandas_dtype` imports pandas, in most
    versions of pyarrow.

    >>> numpy_type(pa.int64()), numpy_type(pa.string())
    (dtype('int64'), dtype('O'))
    """
    dtype: np.dtype[Any] = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
    return dtype
