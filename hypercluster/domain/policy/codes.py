"""Refusals of operator commands."""

from hypercluster.domain.codes import Code, register

CODES = {
    "policy_invalid": Code(422, "a number of the policy is out of its range, or a table is inconsistent"),
    "policy_version_used": Code(409, "a policy's version must be above that of the last adopted one"),
    "metagraph_invalid": Code(422, "the metagraph list has a malformed or repeated hotkey, uid or coldkey"),
    "metagraph_outdated": Code(409, "a list of a later block, or of another subnet, is in force"),
    "operators_invalid": Code(422, "the operators must be 1 to 32 different hotkeys"),
    "target_invalid": Code(422, "name either a provider_id or a node_id; only a provider can be banned"),
    "ledger_exists": Code(409, "the ledger has been opened, or has its first policy"),
}

register(CODES)
