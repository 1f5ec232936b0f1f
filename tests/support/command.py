"""The command line in tests."""

from typer.testing import CliRunner

from manymatch.cli.app import app


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def one_sentence(result, code=2):
    """Check that a run ended with one line on standard error and nothing else, and return it."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("manymatch: ")
    return result.stderr
