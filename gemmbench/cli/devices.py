"""``gemmbench devices``."""

from __future__ import annotations

import click

from gemmbench import api


@click.command()
@click.option("--json", "as_json", is_flag=True, help="A JSON array, one object for each device.")
def devices(as_json: bool) -> None:
    """List every platform and device, and where its driver was found."""
    listed, host = api.devices_and_host()
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(listed), indent=2).decode())
        return
    from gemmbench.render.devices import devices as table

    api.stdout().print(table(listed, host))
