"""The step of a NeMo-RL run, whose headers count from 1 again in each epoch."""

from __future__ import annotations


class Steps:
    """``step`` counts over all epochs and is 0 before the first; ``epochs`` is how many there will be.

    ``has_results``: the step's training results were seen.
    """

    def __init__(self) -> None:
        self.step = 0
        self.epochs: int | None = None
        self.has_results = False
        self._told = False
        self._epochs_done = 0
        self._in_epoch = 0

    def epoch_header(self, epoch: int, epochs: int) -> None:
        """``Epoch 2/3``: the log tells the epochs."""
        self._epochs_done, self.epochs = max(0, epoch - 1), epochs

    def header(self, step: int, steps: int) -> None:
        """``Step 12/500``. Where the log does not tell the epochs, 1 behind the last one is the next.

        A step that is sampled again has its header twice.
        """
        if self.epochs is None and step == 1 and self._in_epoch == steps and self.has_results:
            self._epochs_done += 1
        self._in_epoch, self.has_results, self._told = step, False, True
        self.step = self._epochs_done * steps + step

    def results(self) -> None:
        """Training results begin: in a log without headers, those of the next step."""
        if self.has_results or not self._told:
            self.step += 1
        self.has_results = True
