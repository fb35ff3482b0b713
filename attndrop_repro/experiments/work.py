"""What a worker does for one job: trains, or loads a trained model and measures it."""

from __future__ import annotations

from attndrop_repro.config.progress import Progress
from attndrop_repro.experiments.jobs import Job
from attndrop_repro.experiments.measuring import Measurer
from attndrop_repro.experiments.where import Where
from attndrop_repro.store import Store


def perform(job: Job, progress: Progress, *, where: Where) -> None:
    """Does one job; what is already in the store is not done again.

    Args:
        job: What to do.
        progress: Who is told.
        where: Store, data, device.
    """
    store = Store(where.results)
    if job.kind == "train":
        from attndrop_repro.training import train

        train(
            job.spec,
            store,
            data_dir=where.data_dir,
            device=where.device,
            progress=progress,
            suite=job.suite,
            download=where.download,
        )
        return
    from attndrop_repro.evaluation.options import default_options
    from attndrop_repro.evaluation.wanted import measured_epochs

    Measurer(store, where).measure(
        job.kind,
        job.spec,
        default_options(job.kind, job.spec.recipe),
        measured_epochs(job.kind, job.spec.recipe),
        progress=progress,
        suite=job.suite,
    )
