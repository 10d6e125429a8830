"""``gemmbench devices``."""

from __future__ import annotations

import click

from gemmbench.cli import running
from gemmbench.measure.child import Worker


@click.command()
@click.option("--json", "as_json", is_flag=True, help="A JSON array, one object for each device.")
def devices(as_json: bool) -> None:
    """List every platform and device, and where its driver was found."""
    with Worker(running.make_machine) as worker:
        found, host = running.every_device(worker)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    from gemmbench.render.devices import devices as table

    running.stdout().print(table(found, host))
