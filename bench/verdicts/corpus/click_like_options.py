# /// label
# kind = "config"
# rank = [0, 1, 2, 3]
# headline = "Invalid value for '--precision': 'fp12' is not one of 'fp32', 'bf16', 'fp16'."
#
# [job]
# arguments = ["--precision", "fp12"]
# ///
import click


@click.command()
@click.option("--precision", type=click.Choice(["fp32", "bf16", "fp16"]), default="bf16")
def cli(precision: str) -> None:
    """Train."""
    click.echo(f"training in {precision}")


cli()
