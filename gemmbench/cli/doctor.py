"""`gemmbench doctor`: what keeps this machine from its ceiling."""

from __future__ import annotations

import json

import click

from gemmbench import api
from gemmbench.cli import running
from gemmbench.doctor import table
from gemmbench.options.doctoring import Doctor


def _doctor(options: Doctor) -> None:
    report, machine = api.examined(options.device)
    if options.json:
        click.echo(json.dumps(table.to_record(report), indent=2))
    else:
        page = table.page(report, machine.chosen, machine.cpu)
        api.stdout().print(page, crop=False)  # commands are longer than lines may be


doctor = running.command(Doctor, _doctor)
