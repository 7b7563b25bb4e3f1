"""The generated pages for those who use the program: commands and settings."""

from typing import Any

CLI_HEAD = """# Command line

Generated from the commands by `tests/support/catalogue.py`; a test fails when it is stale.

Data goes to standard output, everything else to standard error. An error is three lines: what happened, why (a
[code](codes.md)), and what to do next; where JSON was asked for it is one JSON object.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | a fault of the server or of this program |
| 2 | wrong input |
| 3 | not signed, or not allowed |
| 4 | not found |
| 5 | in conflict with the state of things |
| 6 | the server does not answer |
| 7 | not now: run it again later |
| 8 | something that ran elsewhere failed |
| 9 | what was checked is wrong |
| 130 | interrupted |
| 141 | the reader of the output went away |

## Options of many commands

Commands that ask a server take these:

"""

SIGN_HEAD = """
Commands marked *(key)* take these as well. A write must be signed.
A read may be: it then shows what is private to the hotkey.

"""

SETTINGS_HEAD = """# Settings

Generated from `hypercluster.runtime.settings` by `tests/support/catalogue.py`; a test fails when it is stale.

A wrong value stops the start and is named. Unknown `CHALLENGE_` names are warned of.
Options of `hypercluster serve` win over variables, but `CHALLENGE_DATABASE_URL` over `--data`.
`BASE_DATABASE_URL` is never read.

| variable | default | meaning |
| --- | --- | --- |
"""

TOKEN = """
The token may stand in a file instead: `CHALLENGE_SHARED_TOKEN_FILE` or `CHALLENGE_TOKEN_FILE`, or
`/run/secrets/base/challenge_token` where neither is set.
"""

POLICY_HEAD = """
## Variables that repeat the policy

The numbers that decide stand in the ledger's policy, for everybody to see. A variable of this table is only compared
with the policy in force, after multiplying it by the factor: another value stops the start. To change a number, adopt a
policy (`hypercluster operator policy adopt`).

| variable | field of the policy | factor |
| --- | --- | --- |
"""


def cli_page() -> str:
    """Every command with its options and its example."""
    from hypercluster.cli import frame, session  # noqa: PLC0415
    from hypercluster.cli.nouns import NOUNS  # noqa: PLC0415

    options = {option.name: option for option in frame.load("leases").commands["list"].params}
    parts = [CLI_HEAD + options_table([options[name] for name in session._READ])]
    parts.append(SIGN_HEAD + options_table([options[name] for name in session._SIGN]))
    for name in sorted(NOUNS):
        parts.append(f"\n## {name}\n")
        parts += commands(frame.load(name), f"hypercluster {name}")
    return "\n".join(parts)


def commands(command: Any, path: str) -> list[str]:
    """The sections of a command, or of all commands of a group."""
    children = getattr(command, "commands", None)
    if children:
        return [line for name, child in children.items() for line in commands(child, f"{path} {name}")]
    return section(command, path)


def section(command: Any, path: str) -> list[str]:
    """One command: usage, what it does, an example, and the options that are its own."""
    from hypercluster.cli import session  # noqa: PLC0415

    names = {option.name for option in command.params}
    shared = set(session._READ) <= names  # made by `session.command`
    signs = shared and set(session._SIGN) <= names
    hidden = {*(session._READ if shared else ()), *(session._SIGN if signs else ())}
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    usage = " ".join([path, *(argument(one) for one in arguments)])
    found = [f"### `{usage}`" + (" *(key)*" if signs else "") + "\n", f"{command.help}\n"]
    found.append("```sh\n" + command.epilog.removeprefix("Example: ") + "\n```\n")
    found += [f"* `{argument(one)}`: {one.help}" for one in arguments]
    if arguments:
        found.append("")
    own = [one for one in command.params if one.param_type_name == "option" and one.name not in hidden]
    return [*found, options_table(own)] if own else found


def argument(one: Any) -> str:
    """An argument as it stands in a usage line."""
    name = (one.metavar or one.name).upper()
    return name if one.required else f"[{name}]"


def options_table(options: list[Any]) -> str:
    """Options as a Markdown table."""
    rows = ["| option | default | meaning |", "| --- | --- | --- |"]
    for one in options:
        spelled = ", ".join(f"`{word}`" for word in sorted(one.opts, key=len, reverse=True))
        variable = f" Variable: `{one.envvar}`." if one.envvar else ""
        rows.append(f"| {spelled} | {default(one)} | {cell(one.help)}{variable} |")
    return "\n".join(rows) + "\n"


def default(one: Any) -> str:
    """The default of an option."""
    if one.required:
        return "required"
    if one.default is None or one.default is False:
        return ""
    return f"`{getattr(one.default, 'value', one.default)}`"


def cell(text: str) -> str:
    """Text that may stand in a table."""
    return text.replace("|", "\\|")


def settings_page() -> str:
    """Every variable of the environment."""
    from hypercluster.runtime import settings  # noqa: PLC0415

    rows = [
        f"| `{field.validation_alias}` | {setting_default(field.default)} | {cell(field.description)} |"
        for field in settings.Settings.model_fields.values()
        if str(field.validation_alias).isupper()
    ]
    numbers = [
        f"| `{name}` | `{field}` | {scale if scale == 1 else f'{scale:,}'} |"
        for name, (field, scale) in settings._POLICY_NUMBERS.items()
    ]
    numbers.append(f"| `{settings._ALLOWLIST}` | `image_allowlist` | list, comma-separated |")
    return SETTINGS_HEAD + "\n".join(rows) + "\n" + TOKEN + POLICY_HEAD + "\n".join(numbers) + "\n"


def setting_default(value: object) -> str:
    """The default of a setting, empty where there is none."""
    if value is None or value in ("", ()):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
