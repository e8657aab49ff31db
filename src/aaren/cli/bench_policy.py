"""`aaren bench policy`: what one action costs."""

from aaren.cli.bench import FigureBase, PagePath, Quick, RecordPath, Threads


def policy(
    quick: Quick = False,
    threads: Threads = None,
    record: RecordPath = None,
    figure: FigureBase = None,
    page: PagePath = None,
) -> None:
    """Time one action at steps 10 and 1,000: state carried, reset, window, cache; about two minutes."""
    import torch

    from aaren.bench import policy as bench
    from aaren.bench.progress import progress_bar
    from aaren.bench.publish import Destinations, publish

    destinations = Destinations(record=record, figure=figure, page=page)
    destinations.check(bench.KIND)
    settings = bench.QUICK if quick else bench.PolicySettings()
    command = "aaren bench policy" + " --quick" * quick
    if threads is not None:
        torch.set_num_threads(threads)
        command += f" --threads {threads}"
    with progress_bar("bench policy") as on_step:
        result = bench.measure(settings, command=command, on_step=on_step)
    publish(result, destinations)
