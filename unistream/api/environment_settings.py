"""The part of `Environment` that knows its options."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Self

from unistream.api.graph import check_max_parallelism, check_parallelism
from unistream.base.config import CHAINING, MAX_PARALLELISM, PARALLELISM, Configuration
from unistream.base.config_file import LayeredConfig
from unistream.base.targets import Target


class EnvironmentSettings:
    """Options of a job, and of its cluster if that lives in this process.

    Args:
        target: None: the default one.
    """

    def __init__(self, options: LayeredConfig, target: Target | None) -> None:
        self._target = target
        self._have(options)

    def _have(self, options: LayeredConfig) -> None:
        self._options = options
        known = options.as_client() if self._target == "remote" else options.own_cluster()
        self._config = Configuration({PARALLELISM.key: known.get(PARALLELISM)}).merged(known.to_dict())

    def _set(self, values: Mapping[str, str]) -> None:
        self._have(self._options.with_given(Configuration(values)))

    def without_surroundings(self) -> Self:
        """The same pipeline with what the program itself says: no file, no variables of the environment. For
        tests."""
        made = copy.copy(self)
        made._have(LayeredConfig(self._options.given))
        return made

    @property
    def config(self) -> Configuration:
        """The configuration of the job and, unless the target is "remote", of its cluster."""
        return self._config

    @property
    def options(self) -> LayeredConfig:
        """The configuration by where it is from: from the program, or from what surrounds it."""
        return self._options

    def travelling(self) -> dict[str, str]:
        """The options that go to the cluster with the job: how it runs, and all that the program itself has
        set. Others that surround the program (config.yaml) are for its own cluster alone."""
        return {PARALLELISM.key: str(self.parallelism), **self._options.travelling().to_dict()}

    @property
    def parallelism(self) -> int:
        """Parallelism of operators that set none."""
        return self._config.get(PARALLELISM)

    def set_parallelism(self, parallelism: int) -> Self:
        """Parallelism of operators that set none.

        Raises:
            ConfigError: below 1, or above the max parallelism.
        """
        check_parallelism(parallelism, self._max_parallelism(), "environment")
        self._set({PARALLELISM.key: str(parallelism)})
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Number of key groups of operators that set none, which limits their parallelism for ever."""
        check_max_parallelism(max_parallelism, self.parallelism, "environment")
        self._set({MAX_PARALLELISM.key: str(max_parallelism)})
        return self

    def disable_operator_chaining(self) -> Self:
        """Every operator gets a task of its own."""
        self._set({CHAINING.key: "false"})
        return self

    def _max_parallelism(self) -> int | None:
        value = self._config.get(MAX_PARALLELISM)
        return None if value == -1 else value
